from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from numpy.typing import NDArray

from runhooks.checkpoint import arrays

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


@given(
    st.dictionaries(
        st.text(max_size=20),
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
        np.zeros(2, np.complex128),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, ml_dtypes.int4),
    ],
    ids=lambda array: str(array.dtype),
)
def test_refuses_other_dtypes_by_name(array: NDArray[Any]) -> None:
    with pytest.raises(TypeError, match=r"'model/odd' has dtype .* make it one of float64, "):
        encode(**{"model/odd": array})


@pytest.mark.parametrize("name", ["__metadata__", "a/\udc80"])
def test_refuses_names_that_could_not_be_read_back(name: str) -> None:
    with pytest.raises(ValueError, match="cannot hold an array named .*: rename it") as error:
        encode(**{name: np.zeros(1)})
    assert repr(name) in str(error.value)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"not a safetensors file at all"])
def test_refuses_what_is_no_such_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="deserializing"):
        arrays.decode(data)
