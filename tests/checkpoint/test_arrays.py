from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from numpy.typing import NDArray

from runhooks.checkpoint import arrays
from runhooks.checkpoint.manifest import ArraySpec

BY_NUMPY = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8"]
BY_ML_DTYPES = [
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
]


def encode(**values: NDArray[Any]) -> bytes:
    arrays.check(values)
    return b"".join(bytes(piece) for piece in arrays.encode(values))


@pytest.mark.parametrize("dtype", [*BY_NUMPY, *BY_ML_DTYPES])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (2, 3, 4)])
def test_comes_back_as_it_was(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    back = arrays.decode(encode(x=array))["x"]
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert back.tobytes() == array.tobytes()


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=20).filter(lambda name: name != "__metadata__"),
        np_st.arrays(
            st.sampled_from(BY_NUMPY).map(np.dtype), np_st.array_shapes(min_dims=0, min_side=0)
        ),
        max_size=5,
    )
)
def test_the_safetensors_library_reads_the_same(values: dict[str, NDArray[Any]]) -> None:
    read = safetensors.numpy.load(encode(**values))
    assert read.keys() == values.keys()
    for name, array in values.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_reads_what_the_safetensors_library_wrote() -> None:
    data = safetensors.numpy.save({"a": np.arange(3), "b": np.float16([[1], [2]])})
    assert {name: array.tolist() for name, array in arrays.decode(data).items()} == {
        "a": [0, 1, 2],
        "b": [[1.0], [2.0]],
    }


def test_takes_arrays_in_any_layout() -> None:
    base = np.arange(24).reshape(4, 6)
    given_ = {
        "transposed": base.T,
        "strided": base[::2, ::3],
        "reversed": base[::-1],
        "fortran": np.asfortranarray(base),
        "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
        "big_endian": base.astype(">i4"),
    }
    for name, array in arrays.decode(encode(**given_)).items():
        np.testing.assert_array_equal(array, given_[name])


def test_each_array_starts_at_a_multiple_of_its_item_size() -> None:
    data = encode(a=np.ones(3, np.uint8), b=np.ones(1, np.float64), c=np.ones(1, np.float16))
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert {name: entry["data_offsets"][0] for name, entry in header.items()} == {
        "b": 0,
        "c": 8,
        "a": 10,
    }


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
def test_refuses_other_dtypes_by_name(array: NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="'model/odd'"):
        encode(**{"model/odd": array})


@pytest.mark.parametrize("name", ["__metadata__", "a/\udc80"])
def test_refuses_names_that_could_not_be_read_back(name: str) -> None:
    with pytest.raises(ValueError, match="named") as error:
        encode(**{name: np.zeros(1)})
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


def specs(**values: NDArray[Any]) -> dict[str, ArraySpec]:
    return {name: ArraySpec(array.dtype.name, array.shape) for name, array in values.items()}


@pytest.mark.parametrize("array", OTHERS, ids=lambda array: str(array.dtype))
def test_dtypes_that_the_format_lacks_come_back_too(array: NDArray[Any]) -> None:
    values = {"odd": array, "even": np.arange(3.0)}
    back = arrays.decode(encode(**values), specs(**values))
    assert back["odd"].dtype.name == array.dtype.name
    np.testing.assert_array_equal(back["odd"], array)
    np.testing.assert_array_equal(back["even"], values["even"])


def with_header(header: Any, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), data_offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(8),
        b"not a safetensors file at all",
        with_header(b""),
        with_header([]),
        with_header({"x": 5}),
        with_header({"x": {"dtype": "F32"}}),
        with_header({"x": entry(dtype="O")}),
        with_header({"x": entry(dtype=[])}),
        with_header({"x": entry(shape=5)}),
        with_header({"x": entry(shape=[2.0])}),
        with_header({"x": entry(shape=[True, 2])}),
        with_header({"x": entry(shape=[-1, -2])}),
        with_header({"x": entry(shape=[3])}),
        with_header({"x": entry(shape=[1 << 62, 1 << 62])}),
        with_header({"x": entry(shape=[1] * 65 + [2])}),
        with_header({"x": entry(shape=[0, 1 << 62, 1 << 62], data_offsets=(0, 0))}, b""),
        with_header({"x": entry(data_offsets=(0, 8, 9))}),
        with_header({"x": entry(data_offsets=(8, 16))}),
        with_header({"x": entry()}, bytes(7)),
        with_header({"x": entry()}, bytes(9)),
        with_header({"x": entry(), "y": entry()}),
        with_header({"x": entry(), "y": entry(data_offsets=(4, 12))}, bytes(12)),
        with_header({"x": entry(), "y": entry(data_offsets=(9, 17))}, bytes(17)),
        with_header(b"[" * 100_000),
        with_header(b'{"x": 1' + b"0" * 5000 + b"}"),
        with_header(b"\xff{}"),
    ],
)
def test_refuses_what_is_not_such_a_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="it|entry|array|shape"):
        arrays.decode(data)


@pytest.mark.parametrize(
    "specs",
    [
        {},
        {"y": ArraySpec("float64", (2, 3))},
        {"x": ArraySpec("float64", (2, 3)), "y": ArraySpec("float64", (0,))},
        {"x": ArraySpec("float64", (6,))},
        {"x": ArraySpec("int64", (2, 3))},
        {"x": ArraySpec("complex128", (2, 3))},
        {"x": ArraySpec("object", (2, 3))},
        {"x": ArraySpec("str", (2, 3))},
        {"x": ArraySpec("nonsense", (2, 3))},
    ],
    ids=str,
)
def test_refuses_other_arrays_than_stated(specs: dict[str, ArraySpec]) -> None:
    with pytest.raises(ValueError, match="'x'|'y'|dtype"):
        arrays.decode(encode(x=np.ones((2, 3))), specs)


def test_bytes_never_become_objects() -> None:
    data = encode(x=np.zeros((2, 8), np.uint8))
    with pytest.raises(ValueError, match="object"):
        arrays.decode(data, {"x": ArraySpec("object", (2,))})
