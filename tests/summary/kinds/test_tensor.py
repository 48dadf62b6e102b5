from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.text import metadata
from tensorboard.util.tensor_util import make_ndarray

from runhooks import events
from runhooks.summary import FileWriter, Summary, tensor_value, text_value

DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
]


def written(value: object) -> summary_pb2.Summary.Value:
    message = Summary([tensor_value("t", value)]).SerializeToString()
    (value,) = summary_pb2.Summary.FromString(message).value
    assert value.tag == "t"
    return value


def read(value: object) -> np.ndarray:
    """What TensorFlow reads; its protobuf is a type of its own."""
    proto = tf.compat.v1.Summary.FromString(
        summary_pb2.Summary(value=[written(value)]).SerializeToString()
    )
    return tf.make_ndarray(proto.value[0].tensor)


def test_tensorflow_reads_the_very_array() -> None:
    for dtype in DTYPES:
        for shape in ((), (0, 2), (2, 1, 3)):
            values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
            array = read(values)
            assert (array.dtype, array.shape) == (values.dtype, values.shape)
            assert np.array_equal(array, values)


@settings(deadline=None)
@given(hnp.arrays(st.sampled_from([np.float32, np.int64, ">f4", ">i2"]), hnp.array_shapes()))
def test_tensorboard_reads_the_very_bits(values: np.ndarray) -> None:
    array = make_ndarray(written(values).tensor)
    assert np.array_equal(array, values, equal_nan=values.dtype.kind == "f")


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "bfloat16"])
def test_types_that_numpy_has_not_are_read_back_as_float32(tmp_path: Path, dtype: str) -> None:
    array = np.arange(256, dtype=np.uint8).view(dtype) if dtype != "bfloat16" else np.arange(9)
    with FileWriter(tmp_path) as writer:
        writer.tensor("x", array.astype(dtype), 1)
    (point,) = events.read(tmp_path).only.tensors["x"]
    assert point.value.dtype == np.float32
    np.testing.assert_array_equal(point.value, array.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("grüße", "grüße".encode()),
        ([["a", "b"], ["c", "d"]], [[b"a", b"b"], [b"c", b"d"]]),
        (np.array([b"\xff", b""], object), [b"\xff", b""]),
    ],
)
def test_strings_are_tensors_too(value: object, expected: object) -> None:
    assert make_ndarray(written(value).tensor).tolist() == expected


@pytest.mark.parametrize("value", [np.zeros(2, "M8[s]"), [object()], {"a": 1}])
def test_what_is_no_tensor_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="'t' must hold"):
        written(value)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("**grüße**", ()),
        (b"bytes", ()),
        ("", ()),
        (["one", "three"], (2,)),
        (np.array([["a", "b"], ["c", "d"], ["e", "f"]]), (3, 2)),
        ([], (0,)),
    ],
)
def test_tensorboard_reads_it(accumulate, text: object, shape: tuple[int, ...]) -> None:
    accumulator = accumulate(text_value("note", text))
    (event,) = accumulator.Tensors("note")
    array = make_ndarray(event.tensor_proto)
    assert (event.step, array.shape) == (7, shape)
    expected = [part if isinstance(part, bytes) else part.encode() for part in np.ravel(text)]
    assert array.ravel().tolist() == expected
    plugin = accumulator.SummaryMetadata("note").plugin_data.plugin_name
    assert plugin == metadata.PLUGIN_NAME


@pytest.mark.parametrize("text", [3, None, ["a", 1.5], [["a", "b"], ["c"]]])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises((TypeError, ValueError), match="'note'"):
        Summary([text_value("note", text)]).SerializeToString()
