"""Everything that is no scalar, and scalars in their newer form, of protobufs of TensorBoard."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

from runhooks.errors import DataLossError
from runhooks.events import Audio, Image, SummaryDecoder, read

Write = Callable[..., Path]
Value = summary_pb2.Summary.Value

DTYPES = {
    np.float32: types_pb2.DT_FLOAT,
    np.float64: types_pb2.DT_DOUBLE,
    np.float16: types_pb2.DT_HALF,
    ml_dtypes.bfloat16: types_pb2.DT_BFLOAT16,
    np.int8: types_pb2.DT_INT8,
    np.int16: types_pb2.DT_INT16,
    np.int32: types_pb2.DT_INT32,
    np.int64: types_pb2.DT_INT64,
    np.uint8: types_pb2.DT_UINT8,
    np.uint16: types_pb2.DT_UINT16,
    np.uint32: types_pb2.DT_UINT32,
    np.uint64: types_pb2.DT_UINT64,
    np.bool_: types_pb2.DT_BOOL,
    np.complex64: types_pb2.DT_COMPLEX64,
    np.complex128: types_pb2.DT_COMPLEX128,
}


def metadata(plugin: str, content: bytes = b"") -> Any:
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return summary_pb2.SummaryMetadata(plugin_data=data)


def decode(value: Any) -> Any:
    ((tag, kind, decoded),) = SummaryDecoder().decode(
        summary_pb2.Summary(value=[value]).SerializeToString()
    )
    assert tag == value.tag
    return kind, decoded


def of_plugin(plugin: str, array: Any) -> Any:
    proto = tensor_util.make_tensor_proto(array)
    return decode(Value(tag="t", tensor=proto, metadata=metadata(plugin)))


def as_content(array: Any) -> Any:
    """A tensor proto with the bytes of the array, as TensorFlow writes large ones."""
    proto = tensor_pb2.TensorProto(dtype=DTYPES[array.dtype.type], tensor_content=array.tobytes())
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def number_by_number(array: Any) -> Any:
    """A tensor proto as TensorFlow makes it of Python's numbers."""
    if array.dtype == np.uint64:  # TensorFlow loses digits of these
        shape = as_content(array).tensor_shape
        numbers = array.ravel().tolist()
        return tensor_pb2.TensorProto(
            dtype=DTYPES[np.uint64], tensor_shape=shape, uint64_val=numbers
        )
    proto = tf.make_tensor_proto(array.tolist(), DTYPES[array.dtype.type], array.shape)
    return tensor_pb2.TensorProto.FromString(proto.SerializeToString())


shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
plain = [dtype for dtype in DTYPES if dtype is not ml_dtypes.bfloat16]
arrays = st.sampled_from(plain).flatmap(lambda dtype: npst.arrays(dtype, shapes))


@given(arrays)
def test_tensors_of_every_type(array: Any) -> None:
    for proto in (as_content(array), number_by_number(array)):
        kind, decoded = decode(Value(tag="t", tensor=proto))
        assert (kind, decoded.dtype, decoded.shape) == ("tensor", array.dtype, array.shape)
        np.testing.assert_array_equal(decoded, array)


@given(npst.arrays(np.float32, shapes))
def test_bfloat16_is_widened(array: Any) -> None:
    narrow = array.astype(ml_dtypes.bfloat16)
    bits = narrow.view(np.uint16).ravel().tolist()
    one_by_one = as_content(narrow)
    one_by_one.tensor_content = b""
    one_by_one.half_val.extend(bits)
    for proto in (as_content(narrow), one_by_one):
        _, decoded = decode(Value(tag="t", tensor=proto))
        assert decoded.dtype == np.float32
        np.testing.assert_array_equal(decoded, narrow.astype(np.float32))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_a_single_float8_of_tensorflow(dtype: type) -> None:
    proto = tf.make_tensor_proto(np.array(-1.5, dtype))
    proto = tensor_pb2.TensorProto.FromString(proto.SerializeToString())
    _, decoded = decode(Value(tag="t", tensor=proto))
    assert (decoded, decoded.dtype, decoded.shape) == (-1.5, np.float32, ())


@given(arrays.filter(lambda a: a.size > 0))
def test_one_number_may_stand_for_all(array: Any) -> None:
    first = array.ravel()[:1]
    short = number_by_number(first)
    short.tensor_shape.CopyFrom(as_content(array).tensor_shape)
    np.testing.assert_array_equal(
        decode(Value(tag="t", tensor=short))[1], np.full(array.shape, first[0], array.dtype)
    )


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_tensors_of_strings(strings: list[bytes]) -> None:
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=strings)
    proto.tensor_shape.dim.add(size=len(strings))
    kind, decoded = decode(Value(tag="t", tensor=proto))
    assert (kind, decoded.dtype, decoded.tolist()) == ("tensor", object, strings)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if np.dtype(d).kind in "fiubV"])
@pytest.mark.parametrize("said", ["always", "once"])
def test_scalars_that_are_tensors(tmp_path: Path, write: Write, dtype: Any, said: str) -> None:
    for step in range(30):
        value = Value(tag="x", tensor=as_content(np.array(step % 2, dtype)))
        if said == "always" or not step:
            value.metadata.CopyFrom(metadata("scalars"))
            value.metadata.display_name = "the x"
            value.metadata.summary_description = "a number"
        write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])))
    run = read(tmp_path).only
    assert run.tags == {"x": ("scalar", 30, "scalars", "the x", "a number")}
    assert run.scalars["x"].values.tolist() == [step % 2 for step in range(30)]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalar_tensors_sent_as_numbers(
    tmp_path: Path, write: Write, shape: Any, dtype: Any
) -> None:
    numbers = np.random.default_rng(0).normal(size=50).astype(dtype)
    for step, number in enumerate(numbers):
        proto = tensor_util.make_tensor_proto(np.full(shape, number))
        value = Value(tag="x", tensor=proto, metadata=metadata("scalars"))
        write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])))
    assert read(tmp_path).only.scalars["x"].values.tolist() == numbers.tolist()


@given(
    st.lists(st.tuples(st.floats(), st.floats(0)), max_size=9),
    st.tuples(*(st.floats() for _ in range(5))),
)
def test_histograms(buckets: list[tuple[float, float]], numbers: tuple[float, ...]) -> None:
    limits, counts = [b[0] for b in buckets], [b[1] for b in buckets]
    least, largest, num, total, squares = numbers
    proto = summary_pb2.HistogramProto(
        min=least,
        max=largest,
        num=num,
        sum=total,
        sum_squares=squares,
        bucket_limit=limits,
        bucket=counts,
    )
    kind, decoded = decode(Value(tag="h", histo=proto))
    assert kind == "histogram"
    np.testing.assert_array_equal(decoded[:5], numbers)
    np.testing.assert_array_equal(decoded.limits, limits)
    np.testing.assert_array_equal(decoded.counts, counts)


def test_histograms_that_are_tensors() -> None:
    kind, found = of_plugin("histograms", np.array([[-1.0, 0.0, 3.0], [0.0, 2.0, 4.0]]))
    assert (kind, found.min, found.max, found.num) == ("histogram", -1, 2, 7)
    assert (found.limits.tolist(), found.counts.tolist()) == ([0, 2], [3, 4])
    assert np.isnan(found.sum)
    _, empty = of_plugin("histograms", np.zeros((0, 3)))
    assert (empty.min, empty.num, len(empty.limits)) == (0, 0, 0)


def test_images() -> None:
    proto = summary_pb2.Summary.Image(height=2, width=3, colorspace=4, encoded_image_string=b"png")
    assert decode(Value(tag="i", image=proto)) == ("image", (Image(2, 3, 4, b"png"),))
    assert of_plugin("images", np.array([b"3", b"2", b"one", b"two"], object)) == (
        "image",
        (Image(2, 3, 0, b"one"), Image(2, 3, 0, b"two")),
    )


def test_audio() -> None:
    proto = summary_pb2.Summary.Audio(
        sample_rate=8000,
        num_channels=2,
        length_frames=3,
        encoded_audio_string=b"sound",
        content_type="audio/x",
    )
    sound = Audio(8000.0, 2, 3, b"sound", "audio/x")
    assert decode(Value(tag="a", audio=proto)) == ("audio", (sound,))
    encoded = io.BytesIO()
    with wave.open(encoded, "wb") as file:
        file.setparams((1, 2, 16_000, 5, "NONE", ""))
        file.writeframes(bytes(10))
    wav = encoded.getvalue()
    assert of_plugin("audio", np.array([[wav, b"label"], [b"mp3", b""]], object)) == (
        "audio",
        (Audio(16_000.0, 1, 5, wav, "audio/wav"), Audio(0.0, 0, 0, b"mp3", "audio/wav")),
    )


@given(st.integers(0, 60), st.binary(max_size=8))
def test_audio_of_a_damaged_header(at: int, stray: bytes) -> None:
    encoded = io.BytesIO()
    with wave.open(encoded, "wb") as file:
        file.setparams((2, 2, 8_000, 5, "NONE", ""))
        file.writeframes(bytes(20))
    damaged = encoded.getvalue()
    damaged = damaged[:at] + stray + damaged[at + len(stray) :]
    for content in (damaged, damaged[:at]):
        _, (sound,) = of_plugin("audio", np.array([[content, b""]], object))
        assert sound.encoded == content


def test_text() -> None:
    assert of_plugin("text", np.array("héllo".encode(), object)) == ("text", "héllo")
    assert of_plugin("text", np.array([b"one"], object)) == ("text", "one")
    kind, table = of_plugin("text", np.array([[b"a", b"b"], [b"c", b"d"]], object))
    assert (kind, table.tolist()) == ("text", [["a", "b"], ["c", "d"]])


def test_what_other_plugins_write() -> None:
    curve = np.random.default_rng(0).random((6, 5), np.float32)
    for plugin, kind in (("pr_curves", "pr_curve"), ("mesh", "mesh"), ("of nobody", "tensor")):
        found_kind, found = of_plugin(plugin, curve)
        assert found_kind == kind
        np.testing.assert_array_equal(found, curve)
    layout = np.array(b"layout", object)
    assert of_plugin("custom_scalars", layout) == ("custom_scalars", b"layout")


def test_hyperparameters(tmp_path: Path, write: Write) -> None:
    info = plugin_data_pb2.SessionStartInfo()
    info.hparams["rate"].number_value = 0.1
    info.hparams["optimizer"].string_value = "adam"
    info.hparams["bias"].bool_value = True
    info.hparams["none"].null_value = 0
    data = plugin_data_pb2.HParamsPluginData(session_start_info=info).SerializeToString()
    value = Value(tag="_hparams_/session_start_info", metadata=metadata("hparams", data))
    write(event_pb2.Event(summary=summary_pb2.Summary(value=[value])))
    run = read(tmp_path).only
    assert run.hparams == {"rate": 0.1, "optimizer": "adam", "bias": True, "none": None}
    assert run.points("hparams")["_hparams_/session_start_info"][0].value == data


def test_points_are_decoded_when_they_are_touched(tmp_path: Path, write: Write) -> None:
    for step in range(3):
        content = b"3" if step == 1 else b"2"  # an image must have two sizes
        strings = np.array([content, b"2", b"png"] if step != 2 else [b"wide"], object)
        proto = tensor_util.make_tensor_proto(strings)
        value = Value(tag="i", tensor=proto, metadata=metadata("images"))
        summary = summary_pb2.Summary(value=[value])
        path = write(event_pb2.Event(wall_time=step + 0.5, step=step, summary=summary))
    points = read(tmp_path).only.images["i"]
    assert (points.steps.tolist(), points.wall_times.tolist()) == ([0, 1, 2], [0.5, 1.5, 2.5])
    assert points[1] == (1, 1.5, (Image(2, 3, 0, b"png"),))
    assert points[-2] == points[1]
    assert points[:2] == [points[0], points[1]]
    with pytest.raises(DataLossError, match="image of tag 'i'"):
        _ = points[2]
    with pytest.raises(IndexError):
        _ = points[3]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        _ = points[0]


@pytest.mark.parametrize(
    ("plugin", "array", "message"),
    [
        ("scalars", np.zeros(2), "scalar"),
        ("scalars", np.array(b"1", object), "scalar"),
        ("histograms", np.zeros((2, 2)), r"\[n, 3\]"),
        ("images", np.zeros(3), "images .*float64"),
        ("images", np.array([b"a", b"b"], object), "size, got b'a'"),
        ("audio", np.zeros((1, 2)), "audio .*float64"),
        ("text", np.zeros(1), "text .*float64"),
    ],
)
def test_what_makes_no_sense(plugin: str, array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_plugin(plugin, array)


@pytest.mark.parametrize("kind", ["scalar", ["text"]])
def test_a_kind_must_be_known(tmp_path: Path, write: Write, kind: Any) -> None:
    write()
    with pytest.raises(ValueError, match=f"kind .*got {re.escape(repr(kind))}"):
        read(tmp_path).only.points(kind)
