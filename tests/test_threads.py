"""Work shared out among threads gives what one thread gives: in order, byte for byte, with the same error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from smidgen.data import examples, pixel_encoding
from smidgen.data.layouts.cifar import read_sample
from smidgen.data.samples import DataError
from smidgen.errors import InputError, SmidgenError
from smidgen.inference import predict
from smidgen.inference import test as judge
from smidgen.ir import Array
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Course, learn
from smidgen.learning.testing import measure
from smidgen.quantization import METHODS, Method, QuantizationError, Recipe, quantize
from smidgen.quantization.batch import Passes
from smidgen.quantization.calibration import calibrate
from smidgen.targets.device import FEWEST, Device, share_out
from smidgen.targets.host import Host
from smidgen.threads import cores, in_order, threads_for
from smidgen.training import Options
from tests.cli.test_cli import fail
from tests.support.float_graphs import dequantized
from tests.support.loss_tasks import TASKS, Task
from tests.support.output_networks import in_a_folder_of_photographs, labelled, named_network, of_rows, rows
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.streams import streaming_network

SEVERAL = 3
DATA = draw_shapes(4, FEWEST)


class Broken(SmidgenError):
    """What a worker finds."""


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_results_come_in_the_order_of_the_items_whoever_is_first(items: list[int], threads: int) -> None:
    def slowly(item: int) -> int:
        time.sleep(item / 10_000)
        return item

    assert list(in_order(slowly, items, threads)) == items


@pytest.mark.parametrize("threads", [1, SEVERAL])
def test_the_error_is_that_of_the_first_item_that_has_one_and_no_thread_is_left(threads: int) -> None:
    def judge_item(item: int) -> int:
        if item in (7, 8):
            time.sleep(0.02 if item == 7 else 0)
            raise Broken(f"item {item} is broken")
        return item

    done: list[int] = []
    before = threading.active_count()
    with pytest.raises(Broken, match="item 7 is broken"):
        done.extend(in_order(judge_item, range(100), threads))
    assert threading.active_count() == before


def test_items_are_taken_as_they_are_needed() -> None:
    items = iter(range(1000))
    results = in_order(lambda item: item, items, SEVERAL)
    assert next(results) == 0
    results.close()
    assert next(items) < 50


def test_numpys_settings_hold_in_threads_too() -> None:
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(in_order(lambda x: np.float32(1) / x, [np.float32(0)] * 4, SEVERAL))


def test_small_jobs_stay_with_one_thread_and_large_ones_take_the_cores() -> None:
    assert threads_for(FEWEST - 1, FEWEST) == threads_for(2 * FEWEST - 1, FEWEST) == threads_for(0, FEWEST) == 1
    assert threads_for(1_000_000, FEWEST) == cores() >= 1
    assert threads_for(1_000_000, FEWEST, 7) == 7
    with pytest.raises(InputError, match=r"^0 threads cannot do anything; give 1 or more$"):
        threads_for(10, FEWEST, 0)


def test_a_twin_has_the_state_and_memory_of_its_own(host: Host) -> None:
    program = sm.compile(small_network(), "last:4", host, options=Options(4))
    (image, other) = examples(DATA.train, pixel_encoding(program.graph), 2)
    with program.start() as device:
        device.train(image, 1, 0.1)
        before = device.state()
        with device.twin() or device as twin:
            assert twin is not device
            assert all(np.array_equal(twin.state()[name], array) for name, array in before.items())
            assert twin.train(other, 2, 0.1) == device.train(other, 2, 0.1)
            twin.train(image, 0, 0.1)
        assert any(not np.array_equal(device.state()[name], array) for name, array in before.items())


@pytest.mark.parametrize("target", ["host", "reference"])
def test_a_model_is_judged_and_predicts_alike_on_one_core_and_on_several(target: str) -> None:
    model, seen = named_network(), list[int]()
    alone, shared = (
        judge(model, DATA, target=target, threads=n, on_progress=lambda at: seen.append(at.done)) for n in (1, SEVERAL)
    )
    assert asdict(alone) == asdict(shared)
    assert seen == [*range(1, len(DATA.test) + 1)] * 2
    said = [predict(model, DATA.test.images, target=target, threads=n) for n in (1, SEVERAL)]
    assert said[0] == said[1]


def test_numbers_are_compared_alike_on_one_core_and_on_several() -> None:
    model, samples = of_rows(3), rows(4 * FEWEST)
    data = labelled(samples, tuple(sample[:3] for sample in samples))
    assert judge(model, data, threads=1) == judge(model, data, threads=SEVERAL)


@pytest.mark.parametrize("threads", [1, SEVERAL])
def test_a_sample_that_no_model_takes_ends_a_test_in_the_same_sentence(threads: int) -> None:
    samples = list(rows(4 * FEWEST))
    samples[70] = np.zeros(5, np.float32)
    data = labelled(tuple(samples), tuple(np.zeros(3, np.float32) for _ in samples))
    with pytest.raises(DataError, match=r"^a sample is float32\[5\], the model's input int8\[1, 6\]"):
        judge(of_rows(3), data, threads=threads)


def test_a_photograph_that_cannot_be_read_ends_a_prediction_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = in_a_folder_of_photographs(tmp_path, monkeypatch)
    first, *_ = sorted((place / "photos" / "test").rglob("*.png"))
    for number in range(2 * FEWEST):
        (first.parent / f"z{number:03}.png").write_bytes(first.read_bytes() if number != 40 else b"no image")
    monkeypatch.setattr("smidgen.threads.cores", lambda: SEVERAL)
    assert "z040.png" in fail(capsys, monkeypatch, "predict", "net.smg", "photos/test")


@pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
def test_every_loss_is_measured_alike_on_one_core_and_on_several(make: Callable[[], Task], host: Host) -> None:
    task = make()
    samples = task.data.train.at(i % len(task.data.train) for i in range(SEVERAL * FEWEST))
    with task.compile(host).start() as device:
        assert measure(device, samples, threads=1) == measure(device, samples, threads=SEVERAL)


def test_a_run_of_learning_is_the_same_on_one_core_and_on_several(host: Host) -> None:
    images = examples(DATA.train, pixel_encoding(small_network()))
    program = sm.compile(small_network(), "last:4", host, options=Options(4), images=images)
    alone, shared = (learn(program, DATA, Course(2, 0.05), threads=n) for n in (1, SEVERAL))
    assert alone.record == shared.record
    assert alone.before == shared.before
    assert all(np.array_equal(alone.state[name], array) for name, array in shared.state.items())


def test_who_stops_a_test_halfway_leaves_no_thread_behind(host: Host) -> None:
    program = sm.compile(small_network(), "last:4", host, options=Options(4))

    def stop(done: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    before = threading.active_count()
    with program.start() as device:
        with pytest.raises(KeyboardInterrupt) as caught:  # which keeps the frames, and what is open in them
            measure(device, DATA.test, stop, threads=SEVERAL)
        assert threading.active_count() == before
        assert caught.type is KeyboardInterrupt


def by_whom(device: Device) -> int:
    """How many devices share samples out; as many have to be at work at the same time."""
    met = threading.Barrier(SEVERAL)

    def meet(one: Device, _: int) -> int:
        if not one.graph.variables:
            met.wait(30)
        return id(one)

    return len(set(share_out(device, meet, range(SEVERAL), SEVERAL)))


def test_samples_are_shared_out_but_a_stream_stays_with_one_device(host: Host) -> None:
    network = small_network()
    with sm.compile(network, target=host).start() as device:
        assert by_whom(device) == SEVERAL
    with sm.compile(streaming_network(), target=host).start() as device:
        assert by_whom(device) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_model_is_quantized_alike_on_one_core_and_on_several(method: Method) -> None:
    images = read_sample().train.images[::8]
    graph = dequantized(small_network(), Preprocessing())
    alone, shared = (quantize(graph, images, Recipe(method), threads=n) for n in (1, SEVERAL))
    assert alone.report == shared.report
    assert alone.graph == shared.graph


@pytest.mark.parametrize("threads", [1, SEVERAL])
def test_numbers_that_are_not_finite_end_a_calibration_in_the_same_sentence(threads: int) -> None:
    graph = dequantized(small_network(), Preprocessing())
    samples: Array = np.zeros((40, *graph.image.type.shape), np.float32)
    samples[30] = np.inf
    with pytest.raises(QuantizationError, match=f"%{graph.image.name} of {graph.name} is not finite on the samples"):
        calibrate(graph, samples, "minmax", 100, Passes(threads=threads))
