"""Arrays of any dtype and shape, and files that are none."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors

import runhooks as rh
from runhooks.checkpoint import Snapshot, read_checkpoint, write_checkpoint
from runhooks.errors import DataLossError

BY_NUMPY = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8"]
BY_ML_DTYPES = [
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
]


SHAPES = [(), (0,), (3, 0, 2), (7,), (2, 3, 4)]


def save(path, arrays):
    """Save arrays; return what comes back."""
    write_checkpoint(path, Snapshot(arrays, {}), global_step=None)
    return read_checkpoint(path).arrays


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype.name == array.dtype.name
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.astype(found[name].dtype).tobytes()


def test_arrays_come_back_as_they_were_and_other_programs_read_them(tmp_path):
    arrays = {
        f"{np.dtype(dtype).name}/é{shape}": (np.arange(np.prod(shape, dtype=int)) % 2)
        .reshape(shape)
        .astype(dtype)
        for dtype in (*BY_NUMPY, *BY_ML_DTYPES)
        for shape in SHAPES
    }
    assert_same(save(tmp_path, arrays), arrays)
    of_numpy = {name: it for name, it in arrays.items() if it.dtype.type.__module__ == "numpy"}
    with safetensors.safe_open(tmp_path / "checkpoint.safetensors", "np") as theirs:
        assert set(theirs.keys()) == arrays.keys()
        assert_same({name: theirs.get_tensor(name) for name in of_numpy}, of_numpy)


def test_takes_arrays_in_any_layout(tmp_path):
    base = np.arange(24).reshape(4, 6)
    given = {
        "transposed": base.T,
        "strided": base[::2, ::3],
        "reversed": base[::-1],
        "fortran": np.asfortranarray(base),
        "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
        "big_endian": base.astype(">i4"),
    }
    for name, array in save(tmp_path, given).items():
        np.testing.assert_array_equal(array, given[name])


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, "V3"),
        *([np.zeros(2, np.dtypes.StringDType())] if np.__version__ >= "2" else []),
    ],
    ids=lambda array: str(array.dtype),
)
def test_refuses_other_dtypes_by_name(tmp_path, array):
    with pytest.raises(TypeError, match="'model/odd'"):
        save(tmp_path, {"model/odd": array})


@pytest.mark.parametrize("name", ["__metadata__", "__states__/0", "a/\udc80"])
def test_refuses_names_that_could_not_be_read_back(tmp_path, name):
    with pytest.raises(ValueError, match="named") as error:
        save(tmp_path, {name: np.zeros(1)})
    assert repr(name) in str(error.value)


OTHERS = [
    np.array([1 + 2j, np.nan]),
    np.array([[1, -2], [3, 0]], ml_dtypes.int4),
    np.array(["2026-01-01", "NaT"], "M8[ns]"),
    np.array([5], "m8[25s]"),
    np.arange(6, dtype=">c16").reshape(2, 3).T,
    np.ones(2, np.longdouble) / 3,
]
if hasattr(ml_dtypes, "uint2"):  # TensorFlow before 2.19 does not allow ml_dtypes 0.5
    OTHERS += [np.array(3, ml_dtypes.uint2), np.zeros((0, 2), ml_dtypes.float4_e2m1fn)]


def test_dtypes_that_the_format_lacks_come_back_too(tmp_path):
    arrays = {str(array.dtype): array for array in OTHERS} | {"even": np.arange(3.0)}
    assert_same(save(tmp_path, arrays), arrays)


def with_header(header, data=bytes(8)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), data_offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),
        b"not a safetensors file at all",
        with_header([]),
        with_header({"x": 5}),
        with_header({"x": entry(dtype="O")}),
        with_header({"x": entry(shape=5)}),
        with_header({"x": entry(shape=[-1, -2])}),
        with_header({"x": entry(shape=[3])}),
        with_header({"x": entry(shape=[1] * 65 + [2])}),
        with_header({"x": entry(shape=[0, 1 << 62, 1 << 62], data_offsets=(0, 0))}, b""),
        with_header({"x": entry(data_offsets=(0, 8, 9))}),
        with_header({"x": entry()}, bytes(9)),
        with_header({"x": entry(), "y": entry(data_offsets=(4, 12))}, bytes(12)),
        with_header({"x": entry(), "y": entry(data_offsets=(9, 17))}, bytes(17)),
        with_header(b"[" * 100_000),
        with_header(b"\xff{}"),
    ],
)
def test_refuses_what_is_not_such_a_file(tmp_path, data):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(DataLossError, match="it|entry|array|shape"):
        rh.load(tmp_path / "a.safetensors")
