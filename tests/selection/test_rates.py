"""The rate that short trials choose learns about as well as the best, without a look at the test images."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from smidgen import cli, threads
from smidgen.codegen import Sources
from smidgen.data import Data, DataError, PixelEncoding, Samples, centre, examples, pixel_encoding
from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError, learn
from smidgen.ops.rules import Momentum
from smidgen.pipeline import Program, compile
from smidgen.selection import rates
from smidgen.selection.rates import RATES, USUAL, ChosenRate, RateProgress, RateTrial, choose_rate, make_course
from smidgen.selection.trials import hold_back
from smidgen.targets.device import Device
from smidgen.targets.host import Host, HostDevice
from smidgen.training import Options
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import first

COURSE = Course(8, 0.0)
DATA = draw_shapes(40, 20)
FEW = draw_shapes(12, 2)


def program(host: Host, scheme: str = "last:3", options: Options | None = None, data: Data = DATA) -> Program:
    graph = small_network()
    return compile(
        graph, scheme, host, options=options or Options(4), images=examples(data.train, pixel_encoding(graph))
    )


@pytest.mark.parametrize("scheme", first("head", "last:5"))
def test_the_rate_chosen_learns_nearly_as_well_as_the_best_of_all(host: Host, scheme: str) -> None:
    built = program(host, scheme)
    chosen = choose_rate(built, DATA, COURSE)
    found: dict[float, float] = {}
    for rate in (*RATES[3:], chosen.learning_rate):  # lower ones hardly learn
        found[rate] = learn(built, DATA, replace(COURSE, learning_rate=rate, test_every=COURSE.epochs)).accuracy
    assert found[chosen.learning_rate] >= max(found.values()) - 0.05
    if scheme != "head":  # from zero a head alone learns much the same at most rates
        assert found[chosen.learning_rate] > min(found.values()) + 0.15  # it matters which is taken


def test_the_choice_does_not_depend_on_the_number_of_cores(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    built, found = program(host), []
    for cores in (1, 3):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        found.append(choose_rate(built, DATA, COURSE))
    assert found[0] == found[1]


def test_test_images_play_no_part(host: Host) -> None:
    blank = Samples(tuple(np.zeros_like(image) for image in DATA.test.images), DATA.test.labels)
    built = program(host)
    assert choose_rate(built, DATA, COURSE) == choose_rate(built, replace(DATA, test=blank), COURSE)


@dataclass(frozen=True)
class Watched(Host):
    """A host whose devices keep what they were shown, by whether they learned from it."""

    learned: list[bytes] = field(default_factory=list)
    judged: list[bytes] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def start(self, graph: Graph, sources: Sources) -> HostDevice:
        watched = self

        class Watching(HostDevice):
            def twin(self) -> None:  # type: ignore[override]
                """The one that is watched does everything."""

            def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
                watched.rates.extend([learning_rate] if learning_rate else [])
                (watched.learned if learning_rate else watched.judged).append(image.tobytes())
                return super().train(image, label, learning_rate)

        return Watching(graph, sources, self.build(sources))


def test_images_held_back_are_judged_with_and_never_learned_from(host: Host) -> None:
    watched = Watched(cache=host.cache, frugal=True)
    plain = replace(COURSE, augment=None)  # so that an image is told by its bytes
    choose_rate(program(watched, data=FEW), FEW, plain)
    encoding = pixel_encoding(small_network())

    def seen(samples: Samples) -> set[bytes]:
        return {plain.image(image, encoding, 0, 0).tobytes() for image in samples.images}

    parts = hold_back(FEW)
    assert set(watched.judged) == seen(parts.test)
    assert set(watched.learned) == seen(parts.train)
    assert not seen(parts.test) & seen(parts.train)


def test_of_a_long_course_the_beginning_is_tried(host: Host) -> None:
    course = Course(40, RATES[USUAL][0], seed=5)  # the lowest, which is not tried beyond the first comparison
    built, parts = program(host), hold_back(DATA)
    tried = choose_rate(built, DATA, course).trials[0]
    assert (tried.learning_rate, tried.steps, len(parts.train)) == (course.learning_rate, 256, 120)
    heard, encoding = [], pixel_encoding(built.graph)
    with built.start() as device:
        for step in range(256):
            epoch, at = divmod(step, 120)
            if epoch > 0:  # every image was learned from: one held back tells how well
                heard.append(judged(device, parts.test.at([step % 40]), encoding))
            index = course.order(epoch, 120)[at]
            image = course.image(parts.train.images[index], encoding, epoch, index)
            loss = device.train(image, parts.train.labels[index], course.rate(epoch, at, 120))
            if epoch == 0:
                heard.append(loss)
    assert tried.loss == pytest.approx(sum(heard[128:]) / 128)


def judged(device: Device, samples: Samples, encoding: PixelEncoding) -> float:
    """The mean loss of images that the device does not learn from."""
    kept, losses = device.state(), []
    for image, label in zip(samples.images, samples.labels, strict=True):
        losses.append(device.train(centre(image, encoding), label, 0.0))
        device.restore(kept)
    return sum(losses) / len(losses)


def test_a_short_course_is_tried_whole_and_judged_at_its_end(host: Host) -> None:
    course, parts, built = Course(3, RATES[USUAL][0]), hold_back(FEW), program(host, data=FEW)
    tried = choose_rate(built, FEW, course).trials[0]
    assert (tried.learning_rate, tried.steps) == (course.learning_rate, 3 * len(parts.train))
    with built.start() as device:
        device.restore(learn(built, parts, course).state)
        assert tried.loss == pytest.approx(judged(device, parts.test, pixel_encoding(built.graph)))


def test_the_rate_of_a_course_that_was_sped_up_falls_with_the_root_of_its_length(host: Host) -> None:
    built = program(host, data=FEW)
    for epochs, longer in ((3, 4 / 3), (50, 50 * 48 / 768)):  # a quarter of the images is held back
        chosen = choose_rate(built, FEW, Course(epochs, 0.0))
        assert chosen.longer == pytest.approx(longer)
        assert chosen.learning_rate == pytest.approx(chosen.best / longer**0.5)
        assert chosen.best == min(chosen.trials, key=lambda one: one.loss or math.inf).learning_rate
    assert choose_rate(program(host), DATA, Course(60, 0.0)).longer == 1


def test_a_course_of_middling_length_is_sped_up(host: Host) -> None:
    watched = Watched(cache=host.cache, frugal=True)
    choose_rate(program(watched), DATA, Course(30, 0.0))
    rates_seen = watched.rates[: 768 * 4]
    lowest = [rate for rate in rates_seen if rate <= RATES[USUAL][0]]
    assert len(watched.judged) % 40 == 0
    assert min(lowest) < 0.001 * RATES[USUAL][0]  # annealed to the end


def promising(guessing: float, *losses: float | None) -> float:
    """The rate chosen of three, 0.4, 1 and 2 of a batch of 256, by the losses of their beginnings."""
    tried = [RateTrial(rate / 256, 512, loss) for rate, loss in zip((0.4, 1.0, 2.0), losses, strict=True)]
    return rates._promising(tried, guessing).learning_rate * 256


def test_of_beginnings_that_are_as_good_the_highest_rate_is_taken() -> None:
    assert promising(2.0, 1.0, 1.02, 1.04) == 1
    assert promising(2.0, 1.02, 1.0, 1.02) == 2
    assert promising(2.0, 1.0, 1.04, 1.04) == 0.4
    assert promising(2.0, 1.0, 1.02, None) == 1


def test_where_nothing_was_learned_yet_the_safe_rate_is_taken_unless_it_is_clearly_worse() -> None:
    assert promising(2.0, 2.1, 2.2, 2.1) == 1
    assert promising(2.0, 2.1, 2.3, 2.2) == 0.4
    assert promising(2.0, 2.1, None, None) == 0.4
    assert promising(2.0, 1.9, 2.0, 1.9) == 2


@pytest.mark.parametrize(
    ("losses", "steps", "best", "said"),
    [
        ((0.70, 0.50, 0.51), (512, 512, 512), 2, "; 4/256 is the highest rate close to the least loss, 0.500 at 2/256"),
        ((1.00, 0.99, 1.01), (512, 512, 512), 0, "; 1/256 is usually safe, and close to the least loss, 0.990"),
        ((0.40, 0.50, 0.60), (256, 512, 512), 1, "; lower losses are of trials that ended before 512 steps"),
        ((0.70, 0.50, 0.60), (512, 512, 512), 1, "by trials of up to 512 steps"),
    ],
    ids=["close", "plateau", "ended", "least"],
)
def test_a_rate_whose_loss_is_not_the_least_is_chosen_for_a_reason_that_is_said(
    losses: tuple[float, ...], steps: tuple[int, ...], best: int, said: str
) -> None:
    tried = tuple(map(RateTrial, (1 / 256, 2 / 256, 4 / 256), steps, losses))
    rate = tried[best].learning_rate
    assert ChosenRate(rate, rate, 1.0, tried, 30, 10, guessing=1.0).verdict.endswith(said)


def test_rates_beyond_the_usual_ones_are_tried_while_the_best_stands_at_the_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = program(host, options=Options(4, rule=Momentum(0.9)))
    for part in (slice(2, 4), slice(8, 10)):
        monkeypatch.setattr(rates, "USUAL", part)
        found = choose_rate(built, DATA, COURSE)
        tried = [one.learning_rate for one in found.trials]
        assert tried == [rate for rate in RATES if tried[0] <= rate <= tried[-1]]
        assert len(tried) > part.stop - part.start
        best = min(found.trials, key=lambda one: one.loss or math.inf).learning_rate
        assert tried[0] < best < tried[-1]


def test_progress_counts_every_step(host: Host) -> None:
    heard: list[RateProgress] = []
    chosen = choose_rate(program(host), DATA, COURSE, on_progress=heard.append)
    steps = sum(one.steps for one in chosen.trials)
    assert [at.done for at in heard] == list(range(1, steps + 1))
    assert heard[-1].total == steps


def test_what_cannot_be_tried_is_said_in_one_sentence(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = draw_shapes(2, 1)
    with pytest.raises(DataError, match=r"holds 8 training images, of which 4 can be held back.*as a number"):
        choose_rate(program(host, data=tiny), tiny, COURSE)
    with pytest.raises(InputError, match="learn on this machine"):
        choose_rate(compile(small_network(), target=host), DATA, COURSE)
    monkeypatch.setattr(HostDevice, "train", lambda *_: math.nan)
    with pytest.raises(LearningError, match="numbers are no longer finite"):
        choose_rate(program(host), DATA, COURSE)


@pytest.mark.parametrize(("rate", "said"), [(1e-7, "looks too low for 2 epochs; raise it"), (0.3, "lower it")])
def test_a_rate_that_is_clearly_wrong_is_named(host: Host, rate: float, said: str) -> None:
    learned = learn(program(host, "last:5"), DATA, Course(2, rate))
    assert len(learned.warnings) >= 1
    assert said in learned.warnings[-1]
    assert f"{math.log(4):.4g}" in learned.warnings[-1]


def test_a_course_is_made_at_the_rate_given_or_chosen(host: Host) -> None:
    built = program(host, data=FEW)
    assert make_course(built, FEW, 3, 0.5, seed=7) == Course(3, 0.5, seed=7)
    auto = make_course(built, FEW, 3, "auto", seed=7)
    assert auto == Course(3, choose_rate(built, FEW, Course(3, 0.0, seed=7)).learning_rate, seed=7)


def photographs(folder: Path) -> None:
    for place, (image, label) in enumerate(zip(FEW.train.images, FEW.train.labels, strict=True)):
        file = folder / SHAPES[label] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)


def test_train_chooses_its_rate_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photographs(tmp_path / "photos")
    write_smg(small_network(), Path("small.smg"))

    def train(*arguments: str) -> str:
        words = ("train", "small.smg", "--scheme", "head", "--data", "photos", "--epochs", "3", *arguments)
        result = CliRunner().invoke(cli.app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    shown = json.loads(train("-o", "a", "--json"))
    assert shown["learning_rate"] == shown["chosen_rate"]["learning_rate"] > 0
    assert f"learning rate {256 * shown['learning_rate']:.4g}/256, chosen from" in train("-o", "b", "--lr", "auto")
    resumed = json.loads(train("-o", "c", "--resume", "a/small.ckpt", "--json"))
    assert resumed["epochs"] == shown["epochs"]
    given = json.loads(train("-o", "d", "--learning-rate", "1/256", "--json"))
    assert (given["learning_rate"], given["chosen_rate"]) == (1 / 256, None)
