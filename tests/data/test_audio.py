"""Sound files: what is read, how it is brought to one rate, and the sentence where that cannot be."""

from __future__ import annotations

import io
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.data import DataError, as_input, load_data, load_images, pixel_encoding
from smidgen.data.audio import RATE, decode_audio, middle, resample, with_audio_front_end, with_front_end
from smidgen.data.files import Budget
from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, QParams, Type
from smidgen.ir.log_mel import MFCC, YAMNET, LogMel
from smidgen.learning import Course
from tests.support.audio_signals import listener
from tests.support.wav_files import FLOAT, spoken, wav, write_words


def decoded(data: bytes) -> Array:
    return decode_audio(data, "x.wav", Budget(2**24, DataError))


def refused(data: bytes) -> str:
    with pytest.raises(DataError) as raised:
        decoded(data)
    return str(raised.value)


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Array:
    made: Array = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    return made


@pytest.mark.parametrize(("bits", "kind"), [(8, 1), (16, 1), (24, 1), (32, 1), (32, FLOAT)])
@pytest.mark.parametrize("extended", [False, True])
def test_every_width_is_read(bits: int, kind: int, extended: bool) -> None:
    real = spoken("low", 1)
    found = decoded(wav(real, bits=bits, kind=kind, extended=extended))
    assert found.dtype == np.int16
    assert np.abs(found / 32768 - real).max() <= (2**-7 if bits == 8 else 2**-15)


def test_pythons_own_files_are_read(tmp_path: Path) -> None:
    samples = (spoken("high", 3) * 30_000).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams((1, 2, RATE, 0, "NONE", ""))
        made.writeframes(samples.tobytes())
    assert np.array_equal(decoded(file.getvalue()), samples)


def test_channels_are_mixed() -> None:
    left, right = spoken("low", 1)[:4000], spoken("high", 2)[:4000]
    found = decoded(wav(np.stack((left, right), axis=1)))
    assert np.abs(found / 32768 - (left + right) / 2).max() <= 2**-14


@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 192_000])
def test_any_usual_rate_becomes_one(rate: int) -> None:
    found = decoded(wav(tone(440, rate), rate)) / 32768
    wanted = tone(440, RATE)
    assert abs(found.size - wanted.size) <= 1
    inner = slice(400, found.size - 400)
    assert np.abs(found[inner] - wanted[: found.size][inner]).max() < 3e-4


def test_what_the_lower_rate_cannot_hold_is_filtered_out() -> None:
    for hertz in (9_000, 12_000, 20_000):
        found = decoded(wav(tone(hertz, 48_000), 48_000))
        assert np.abs(found[400:-400]).max() < 16, hertz


@given(st.integers(-32768, 32767), st.sampled_from([8_000, 11_025, 44_100, 48_000]))
def test_resampling_keeps_what_does_not_change(level: int, rate: int) -> None:
    found = resample(np.full(4000, level, np.int16), rate, RATE)
    assert np.array_equal(found[400:-400], np.full(found.size - 800, level))


def test_full_strength_saturates_and_does_not_wrap() -> None:
    square = np.where(np.arange(20_000) // 100 % 2, 32767, -32768).astype(np.int16)
    found = resample(square, 44_100, RATE).astype(int)
    assert found.max() == 32767
    assert found.min() == -32768
    assert np.abs(np.diff(found)).max() < 60_000


def test_files_that_are_not_sound_are_refused_in_a_sentence() -> None:
    whole = wav(spoken("low", 1)[:100])
    assert "does not begin as one" in refused(b"RIFX" + whole[4:])
    assert "does not begin as one" in refused(b"")
    assert "no part for its format" in refused(whole[:12])
    assert "no part for its samples" in refused(whole[:36])
    assert "holds no samples" in refused(whole[:44])
    assert "its format takes 16 bytes, it has 2" in refused(whole[:16] + b"\x02\0\0\0" + whole[20:22] + whole[36:])
    assert "its format is 1 with 12 bits; store it as PCM" in refused(whole[:34] + b"\x0c" + whole[35:])
    assert "its format is 2 with 16 bits" in refused(whole[:20] + b"\x02" + whole[21:])
    assert "it has 0 channels" in refused(whole[:22] + b"\0" + whole[23:])
    assert "its rate is 16,001 samples per second" in refused(wav(np.zeros(9), 16_001))
    assert "its rate is 1,000 samples per second" in refused(wav(np.zeros(9), 1_000))
    assert "not finite" in refused(wav(np.array([0.0, np.nan]), kind=FLOAT, bits=32))
    assert all(sentence.startswith("x.wav cannot be read as a .wav file") for sentence in (refused(b""),))


def test_a_file_cut_short_is_read_as_far_as_it_goes() -> None:
    """As programs leave them that write to a pipe: they do not know the size beforehand."""
    real = spoken("low", 1)[:1000]
    whole = wav(real)
    streamed = whole[:40] + b"\xff\xff\xff\xff" + whole[44:-1]
    assert np.array_equal(decoded(streamed), decoded(whole)[:-1])


def test_memory_is_bounded_before_it_is_taken() -> None:
    with pytest.raises(DataError, match="would take"):
        decode_audio(wav(np.zeros((20_000, 2)), 8_000), "x.wav", Budget(1_000_000, DataError))


def test_folders_and_archives_of_sounds_are_read_by_label(tmp_path: Path) -> None:
    folder = write_words(tmp_path / "words", 5)
    data = load_data(folder)
    assert data.classes == ("high", "low", "rising")
    assert (len(data.train), len(data.test)) == (12, 3)
    assert all(image.dtype == np.int16 and image.ndim == 1 for image in data.train.images)
    with zipfile.ZipFile(tmp_path / "words.zip", "w") as archive:
        for path in sorted(folder.rglob("*.wav")):
            archive.write(path, path.relative_to(folder))
    assert load_data(tmp_path / "words.zip").digest() == data.digest()
    assert len(load_images(folder, 4)) == 4


def test_sounds_in_train_and_test_stay_there(tmp_path: Path) -> None:
    write_words(tmp_path / "train", 2)
    write_words(tmp_path / "test", 1)
    data = load_data(tmp_path)
    assert (len(data.train), len(data.test)) == (6, 3)


def test_the_middle_of_a_recording_is_heard() -> None:
    samples = np.arange(1, 20_001).astype(np.int16)
    shape = (1, 49, 10, 1)
    assert np.array_equal(middle(samples, MFCC, shape), samples[2080 : 2080 + 15_840])
    short = middle(samples[:1000], MFCC, shape)
    assert np.array_equal(short[7420:8420], samples[:1000])
    assert not short[:7420].any()
    assert not short[8420:].any()
    assert np.array_equal(middle(samples, MFCC, shape, 100), samples[2180 : 2180 + 15_840])
    assert not middle(samples[:10], MFCC, shape, 9000).any()
    slow, frames = resample(samples, RATE, 8_000), (1, 25, 10)
    assert np.array_equal(middle(samples, LogMel(rate=8_000), frames), middle(slow, LogMel(), frames))


def test_learning_shifts_a_recording_by_a_tenth_of_a_second_at_most() -> None:
    encoding = pixel_encoding(listener())
    samples = (spoken("rising", 1) * 30_000).astype(np.int16)
    course = Course(2, 0.1, seed=3)
    seen = [course.image(samples, encoding, epoch, 0) for epoch in range(8)]
    assert np.array_equal(seen[0], course.image(samples, encoding, 0, 0))
    assert len({image.tobytes() for image in seen}) > 4
    still = Course(2, 0.1, seed=3, augment=None).image(samples, encoding, 0, 0)
    assert np.array_equal(still, as_input(samples, encoding))
    loudest = [int(image.reshape(49, 10)[:, 0].astype(int).argmax()) for image in seen]
    assert max(abs(place - int(still.reshape(49, 10)[:, 0].argmax())) for place in loudest) <= 6


def network(shape: tuple[int, ...]) -> Graph:
    g = Builder("network")
    return g.graph(g.input("x", Type(shape, "int8", QParams.per_tensor(0.5, 0))))


def test_the_usual_front_ends_are_known_by_the_inputs_shape() -> None:
    sound = [np.zeros(9, np.int16)]
    assert with_front_end(network((1, 49, 10, 1)), sound).preprocessing == MFCC
    assert with_front_end(network((1, 96, 64, 1)), sound).preprocessing == YAMNET
    across = with_front_end(network((1, 64, 96, 1)), sound).preprocessing
    assert isinstance(across, LogMel)
    assert across.across
    assert with_front_end(network((1, 64, 96, 1)), sound, "yamnet").preprocessing == across


def test_a_front_end_is_named_with_what_differs() -> None:
    graph = with_audio_front_end(network((1, 1960)), "mfcc,coefficients=0,low=125,high=7500")
    assert graph.preprocessing == LogMel(coefficients=0, low=125.0, high=7500.0)
    graph = with_audio_front_end(network((1, 40, 49, 1)), "mfcc,coefficients=0,across=1")
    assert graph.preprocessing == LogMel(coefficients=0, across=True)


@pytest.mark.parametrize(
    ("audio", "said"),
    [
        (None, "no audio front end is usual for the input [1, 20, 13, 1] of "),
        ("fbank", "begins with no front end that is known; give mfcc, yamnet"),
        ("mfcc,bands", "cannot be set to 'bands'; write name=number"),
        ("mfcc,bands=4.5", "cannot be set to 'bands=4.5'"),
        ("mfcc,colour=3", "cannot be set to 'colour=3'"),
        ("mfcc,bands=nan", "cannot be set to 'bands=nan'"),
        ("mfcc,rate=44100", "audio of 44,100 samples per second is not supported; give one of 8,000"),
        ("mfcc,size=500", "a Fourier transform of 500 samples is not computed"),
        ("mfcc,hop=600", "windows of 480 samples every 600 do not fit a transform of 512"),
        ("mfcc,bands=300", "300 bands and 10 coefficients cannot be had of 512 samples"),
        ("mfcc,high=9000", "there are no bands from 20 to 9000 Hz in 16,000 samples per second"),
        ("mfcc,offset=0", "an offset of 0 under the logarithm is not possible"),
        ("mfcc", "sound of 10 features a frame does not fill an input [1, 20, 13, 1] with frames of features"),
    ],
)
def test_a_front_end_that_cannot_be_is_refused(audio: str | None, said: str) -> None:
    with pytest.raises(InputError) as raised:
        with_front_end(network((1, 20, 13, 1)), [np.zeros(9, np.int16)], audio)
    assert said in str(raised.value)


def test_sound_and_pictures_are_not_taken_for_each_other() -> None:
    deaf, hears = pixel_encoding(network((1, 49, 10, 1))), pixel_encoding(listener())
    with pytest.raises(DataError, match="give --audio mfcc or yamnet"):
        as_input(np.zeros(16_000, np.int16), deaf)
    with pytest.raises(DataError, match="the model expects audio, but a sample is a picture"):
        as_input(np.zeros((20, 20, 3), np.uint8), hears)
    with pytest.raises(InputError, match="--audio mfcc is for audio, but the data hold none"):
        with_front_end(network((1, 49, 10, 1)), [np.zeros((20, 20, 3), np.uint8)], "mfcc")
    features = np.zeros((49, 10, 1), np.float32)
    assert as_input(features, hears).shape == (1, 49, 10, 1)
