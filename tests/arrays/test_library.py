"""Adapters of array libraries: those that are shipped, and one that a user registers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import torch

import runhooks as rh
from runhooks import arrays, events
from runhooks.arrays import ArrayLibrary, library_of, register, snapshot, to_numpy
from runhooks.arrays.registry import unpack

NUMBERS = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)


class Vector:
    """An array of a library that nobody has heard of: no ``__array__``, no ``numpy``, no dtype."""

    def __init__(self, items: list[float]) -> None:
        self.items = items


class Vectors(ArrayLibrary):
    name = "vectors"

    def owns(self, kind: type) -> bool:
        return issubclass(kind, Vector)

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        return np.array(array.items, np.float32)

    def from_numpy(self, array: np.ndarray[Any, Any], like: Any = None) -> Any:
        return Vector(array.tolist())

    def snapshot(self, array: Any) -> Any:
        return Vector(list(array.items))


@pytest.fixture(autouse=True, scope="module")
def _vectors() -> None:
    register(Vectors())


MAKE: dict[str, Callable[[Any], Any]] = {
    "numpy": np.array,
    "jax": jnp.asarray,
    "torch": torch.tensor,
    "tensorflow": tf.constant,
}


@pytest.mark.parametrize("name", MAKE)
def test_arrays_are_known_by_their_type(name: str) -> None:
    array = MAKE[name](NUMBERS)
    library = library_of(array)
    assert library.name == name
    assert arrays.is_array(array)
    np.testing.assert_array_equal(to_numpy(array), NUMBERS)
    (host,) = library.to_host([array], [None])
    np.testing.assert_array_equal(host, NUMBERS)
    assert library.has_nan(array)
    assert not library.has_nan(MAKE[name](np.ones(2, np.int32)))
    assert library.text(array) == str(NUMBERS)
    assert library.nbytes(array) in (0, NUMBERS.nbytes)  # TensorFlow does not say it


@pytest.mark.parametrize("name", ["numpy", "jax", "torch"])
def test_an_array_goes_to_numpy_and_back(name: str) -> None:
    array = MAKE[name](NUMBERS)
    library = library_of(array)
    assert library.host_form(array) == (NUMBERS.shape, NUMBERS.dtype)
    for back in (
        library.from_numpy(NUMBERS),
        library.from_numpy(NUMBERS, array),
        unpack(library.pack(array)),
    ):
        assert type(back) is type(array)
        np.testing.assert_array_equal(to_numpy(back), NUMBERS)


@pytest.mark.parametrize("name", ["jax", "torch", "tensorflow"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_numpy_gets_the_dtype_it_has_from_ml_dtypes(name: str, dtype: str) -> None:
    half = {
        "jax": lambda: jnp.ones(3, dtype),
        "torch": lambda: torch.ones(3).to(getattr(torch, dtype)),
        "tensorflow": lambda: tf.cast(tf.ones(3), dtype),
    }[name]()
    assert to_numpy(half).dtype.name == dtype


def test_nan_is_found_in_any_float_of_torch() -> None:
    for dtype in (torch.float8_e5m2, torch.bfloat16, torch.float64, torch.complex64):
        assert library_of(torch.ones(1)).has_nan(torch.tensor([1.0, np.nan]).to(dtype))
        assert not library_of(torch.ones(1)).has_nan(torch.ones(2).to(dtype))
    assert library_of(torch.ones(1)).has_nan(torch.tensor([0.0, np.nan]).to_sparse())


def test_a_dtype_in_a_file_names_a_dtype() -> None:
    packed = library_of(torch.ones(1)).pack(torch.ones(1))
    for name in ("nn", "nonsense"):
        with pytest.raises(TypeError, match=name):
            unpack(packed._replace(dtype=name))
    with pytest.raises(TypeError, match="object"):
        unpack(library_of(np.ones(1)).pack(np.ones(1))._replace(dtype="|O"))


def test_of_what_is_copied_into_nothing_else_is_handed_out() -> None:
    for make in (np.array, jnp.asarray, torch.tensor):
        array = make(NUMBERS)
        into = np.empty_like(NUMBERS)
        (host,) = library_of(array).to_host([array], [into])
        assert host is into
        (host,) = library_of(array).to_host([array], [np.empty(7)])
        assert not np.shares_memory(host, to_numpy(array))


def test_a_snapshot_of_what_never_changes_is_the_thing_itself() -> None:
    frozen = np.ones(3)
    frozen.flags.writeable = False
    for value in (1.0, "text", None, np.float32(1), frozen, tf.ones(3)):
        assert snapshot(value) is value


@pytest.mark.parametrize(
    "view",
    [
        np.diagonal,
        lambda array: np.broadcast_to(array, (2, 3, 3)),
        lambda array: np.lib.stride_tricks.sliding_window_view(array, (2, 2)),
        lambda array: array.flat,
        lambda array: [array.diagonal()],
        lambda array: pd.DataFrame(array, copy=False),
        lambda array: pd.Series(array[0], copy=False),
    ],
)
def test_what_views_an_array_is_kept_as_it_is(view) -> None:
    array = np.ones((3, 3))
    kept = snapshot(view(array))
    array[:] = 2
    assert np.ravel(to_numpy(kept)).tolist() == np.ones_like(np.ravel(to_numpy(kept))).tolist()


def test_a_view_is_copied_for_what_is_written_later() -> None:
    array = np.ones((3, 3))
    (host,) = library_of(array).to_host([array.diagonal()], [None])
    array[:] = 2
    assert host.tolist() == [1, 1, 1]


def test_a_record_of_an_array_is_kept_as_it_is() -> None:
    records = np.ones(2, [("x", float)])
    kept = snapshot(records[0])
    records["x"] = 2
    assert kept["x"] == 1


@pytest.mark.parametrize(
    "hold",
    [
        lambda inner: {"a": inner},
        lambda inner: [{"a": {"b": inner}}],
        lambda inner: np.array([inner, None], object),
        lambda inner: np.array([{"a": [inner]}], object),
    ],
)
def test_what_is_inside_of_a_snapshot_does_not_change(hold) -> None:
    inner = [1, 2]
    kept = snapshot(hold(inner))
    before = repr(kept)
    inner.append(3)
    assert repr(kept) == before


def test_random_keys_of_jax_are_read_by_nobody_but_come_through() -> None:
    key = jax.random.key(3)
    library = library_of(key)
    assert not library.has_nan(key)
    assert library.text(key) == str(key)
    back = unpack(library.pack(key))
    assert jax.random.key_data(back).tolist() == jax.random.key_data(key).tolist()
    assert jax.random.key_data(snapshot(key)).tolist() == jax.random.key_data(key).tolist()


def test_what_belongs_to_no_library_is_read_as_numpy_reads_it() -> None:
    class Own:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.ones(2)

    class Shared:
        def __dlpack__(self, **options: Any) -> Any:
            return np.ones(2).__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return np.ones(2).__dlpack_device__()

    for value in (Own(), Shared(), [1, 1], (1.0, jnp.ones(()))):
        assert to_numpy(value).tolist() == [1, 1]
        assert library_of(value).pack(value) is None
        assert library_of(value).text(value) == str(value)
    assert arrays.is_array(Own())
    assert not arrays.is_array([1, 1])


def test_arrays_of_a_registered_library_are_written_as_they_were(tmp_path: Path) -> None:
    vector, number = Vector([1.0, 2.0, np.nan]), Vector([0.5])
    with rh.summary.FileWriter(tmp_path) as writer:
        writer.histogram("weights", vector, 1)
        writer.tensor("weights/tensor", vector, 1)
        writer.scalar("loss", number, 1)
        writer.scalars({"loss": number}, 2)
        writer.image("picture", [vector, vector], 1)
        vector.items[:], number.items[:] = [0.0] * 3, [0.0]
    run = events.read(tmp_path).only
    assert run.scalars["loss"].values.tolist() == [0.5, 0.5]
    assert run.histograms["weights"][0].value.num == 2
    np.testing.assert_array_equal(run.tensors["weights/tensor"][0].value, [1.0, 2.0, np.nan])


def test_arrays_of_a_registered_library_are_logged_and_watched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    graph = rh.Graph()
    with graph.as_default():
        good = rh.call(lambda: Vector([1.0, 2.0]), name="good")
        loss = rh.call(lambda: Vector([np.nan]), name="loss")
    hooks = [rh.LoggingTensorHook({"good": good}, 1), rh.NanTensorHook(loss)]
    with (
        graph.as_default(),
        pytest.raises(rh.errors.NanLossDuringTrainingError),
        rh.MonitoredSession(hooks=hooks) as session,
    ):
        session.run(good)
    assert "good = [1. 2.]" in caplog.text


@pytest.mark.parametrize("make", [jnp.asarray, torch.as_tensor, lambda array: Vector(list(array))])
def test_the_python_engine_counts_arrays_of_any_library(make: Callable[[Any], Any]) -> None:
    graph = rh.Graph()
    with graph.as_default():
        weights = rh.call(lambda: make(np.arange(3, dtype=np.float32)))
        summary = rh.summary.histogram("weights", weights)
        with rh.Session() as session:
            (value,) = session.run(summary)
    with rh.summary.MemoryWriter() as writer:
        writer.add_summary(rh.summary.Summary([value]), 1)
        assert writer.points[0].value.sum == 3


def test_arrays_of_a_registered_library_are_kept_in_checkpoints() -> None:
    from runhooks.checkpoint import states

    encoded = states.encode({"hook": {"best": Vector([1.0, 2.0])}})
    assert states.decode(encoded)["hook"]["best"].items == [1.0, 2.0]
    unknown = encoded._replace(text=encoded.text.replace(b'"vectors"', b'"unheard"'))
    assert "unheard" in json.dumps(json.loads(unknown.text))
    with pytest.raises(ImportError, match="unheard"):
        states.decode(unknown)


@pytest.mark.parametrize("name", ["numpy", "torch", "vectors", "two words", ""])
def test_a_name_is_one_word_and_taken_once(name: str) -> None:
    library = Vectors()
    library.name = name
    with pytest.raises(ValueError, match="name"):
        register(library)
    with pytest.raises(TypeError, match="ArrayLibrary"):
        register(Vectors)  # type: ignore[arg-type]


def missing(dtype: torch.dtype) -> Any:
    if dtype == torch.bfloat16:
        raise ImportError("No module named 'ml_dtypes'", name="ml_dtypes")
    return np.dtype(np.float32)


def test_without_ml_dtypes_halves_of_torch_are_read_as_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if it had never been imported: NumPy itself then knows no dtype of these names.
    monkeypatch.setattr("runhooks.arrays.torch.numpy_dtype", missing)
    assert to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
