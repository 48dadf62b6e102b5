import io
import wave

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto import summary_pb2
from tensorboard.util.tensor_util import make_ndarray

from runhooks.summary import Summary, Value, audio_value, clip_value

rng = np.random.default_rng(0)
RATE = 8000


def written(value: Value) -> list[summary_pb2.Summary.Value]:
    return list(summary_pb2.Summary.FromString(Summary([value]).SerializeToString()).value)


def heard(wav: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(wav)) as file:
        frames = file.readframes(file.getnframes())
        return np.frombuffer(frames, "<i2").reshape(-1, file.getnchannels())


def only(samples: object) -> list[int]:
    (value,) = written(clip_value("beep", samples, RATE))
    return heard(value.audio.encoded_audio_string)[:, 0].tolist()


@pytest.mark.parametrize(("shape", "max_outputs"), [((2, 50), 1), ((4, 50, 2), 3)])
def test_it_is_tensorflows_message(
    tensorflows_op, shape: tuple[int, ...], max_outputs: int
) -> None:
    samples = rng.uniform(-1.2, 1.2, shape).astype(np.float32)
    theirs = tensorflows_op(lambda: tf.compat.v1.summary.audio("beep", samples, RATE, max_outputs))
    assert written(audio_value("beep", samples, RATE, max_outputs)) == theirs


@pytest.mark.parametrize("shape", [(2, 50, 1), (3, 50, 2)])
def test_a_batch_is_that_of_tf_summary(tensorflows_writer, shape: tuple[int, ...]) -> None:
    samples = rng.uniform(-1, 1, shape).astype(np.float32)
    theirs = tensorflows_writer(lambda: tf.summary.audio("beep", samples, RATE))
    (ours,) = written(clip_value("beep", samples, RATE))
    assert (ours.tag, ours.metadata) == (theirs.tag, theirs.metadata)
    assert make_ndarray(ours.tensor).tolist() == make_ndarray(theirs.tensor).tolist()


def test_a_clip_has_its_rate_frames_and_channels() -> None:
    samples = rng.integers(-(2**15), 2**15, (30, 2)).astype(np.int16)
    (value,) = written(clip_value("beep", samples, 44_100))
    audio = value.audio
    assert value.tag == "beep"
    assert (audio.sample_rate, audio.num_channels, audio.length_frames) == (44_100, 2, 30)
    assert audio.content_type == "audio/wav"
    assert np.array_equal(heard(audio.encoded_audio_string), samples)


def test_floats_fill_sixteen_bits_and_no_more() -> None:
    assert only([0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0]) == [
        *(0, 16384, -16384, 32767, -32768, 32767, -32768)
    ]
    assert only(np.float64([0.25])) == [8192]
    assert only([[0.25] * 9]) == [8192] * 9  # the channel comes first, as in torchaudio
    assert only(np.zeros(0)) == []


def test_what_is_not_finite_is_silent_or_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        (value,) = written(clip_value("noise", [np.nan, np.inf, -np.inf, 0.5], RATE))
    heard_samples = heard(value.audio.encoded_audio_string)[:, 0].tolist()
    assert heard_samples == [0, 32767, -32768, 16384]
    assert [record.getMessage() for record in caplog.records] == [
        "audio 'noise' has 1 NaN and 2 infinite values, NaN silent, infinite ones cut off "
        "(said once for a tag)"
    ]


def test_what_cannot_be_is_refused_at_once() -> None:
    for shape in ((), (2, 3, 4, 5)):
        with pytest.raises(ValueError, match=r"'beep' must have the shape"):
            clip_value("beep", np.zeros(shape), RATE)
    with pytest.raises(ValueError, match=r"'beep' must have the shape"):
        audio_value("beep", np.zeros(5), RATE)
    with pytest.raises(ValueError, match=r"'beep'.*8 channels"):
        clip_value("beep", np.zeros((2, 100)), RATE)
    with pytest.raises(TypeError, match=r"'beep'.*int64"):
        clip_value("beep", np.zeros(3, np.int64), RATE)
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="sample_rate"):
            clip_value("beep", [0.0], rate)
    for rate in (None, "8000"):
        with pytest.raises(TypeError, match="sample_rate"):
            clip_value("beep", [0.0], rate)
    with pytest.raises(ValueError, match="max_outputs"):
        audio_value("beep", [[0.0]], RATE, 0)
