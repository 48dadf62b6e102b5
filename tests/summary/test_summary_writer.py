from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

from runhooks import events
from runhooks.summary import (
    FileWriter,
    MultiWriter,
    Writer,
)
from tests.summary.conftest import Late

ARRAY = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3) / 16

Write = Callable[[Writer, object], None]

# Each writes an array of the numbers of ARRAY, in a shape it takes.
KINDS: dict[str, Write] = {
    "scalar": lambda writer, x: writer.scalar("x", x[0, 1, 1, 2], 1),
    "scalars": lambda writer, x: writer.scalars({"x": x[0, 1, 1, 2], "y": x[0, 0, 0, :1]}, 1),
    "histogram": lambda writer, x: writer.histogram("x", x, 1),
    "image": lambda writer, x: writer.image("x", x, 1),
    "audio": lambda writer, x: writer.audio("x", x[0, 0], 1, 8000),
    "tensor": lambda writer, x: writer.tensor("x", x, 1),
    "pr_curve": lambda writer, x: writer.pr_curve("x", x > 0.3, x, 1),
    "mesh": lambda writer, x: writer.mesh("x", x[0], 1),
}

ARRAYS: dict[str, Callable[[np.ndarray], object]] = {
    "numpy": lambda array: array,
    "numpy of doubles": lambda array: array.astype(np.float64),
    "jax": jnp.asarray,
    "jax of halves": lambda array: jnp.asarray(array, jnp.bfloat16),
    "torch": torch.tensor,
    "torch of halves": lambda array: torch.tensor(array).bfloat16(),
    "torch with gradients": lambda array: torch.tensor(array, requires_grad=True) * 1,
    "tensorflow": tf.constant,
    "tensorflow of halves": lambda array: tf.constant(array, tf.bfloat16),
}


def contents(values: list) -> list[object]:
    """What was written, less the dtype of a tensor, which is that of what was given."""
    return [
        tf.make_ndarray(tf.compat.v1.Summary.Value.FromString(v.SerializeToString()).tensor)
        .astype(np.float32)
        .tolist()
        if v.tag == "x" and v.HasField("tensor") and not v.metadata.plugin_data.plugin_name
        else v
        for v in values
    ]


@pytest.mark.parametrize("library", ARRAYS)
def test_any_librarys_arrays_are_written_alike(writer, library: str) -> None:
    expected = type(writer)()
    for write in KINDS.values():
        write(expected, ARRAY)
        write(writer, ARRAYS[library](ARRAY))
    assert contents(writer.values) == contents(expected.values)
    assert writer.steps == [1] * len(KINDS)


def changed_by_numpy() -> tuple[object, Callable[[], object]]:
    array = ARRAY.copy()
    return array, lambda: array.fill(9)


def changed_by_torch() -> tuple[object, Callable[[], object]]:
    tensor = torch.tensor(ARRAY, requires_grad=True)
    return tensor, lambda: tensor.data.add_(9)


def changed_by_tensorflow() -> tuple[object, Callable[[], object]]:
    variable = tf.Variable(ARRAY)
    return variable, lambda: variable.assign_add(tf.ones_like(variable))


def donated_by_jax() -> tuple[object, Callable[[], object]]:
    array = jnp.asarray(ARRAY)
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    return array, lambda: step(array).block_until_ready()


@pytest.mark.parametrize(
    "make", [changed_by_numpy, changed_by_torch, changed_by_tensorflow, donated_by_jax]
)
@pytest.mark.parametrize("container", [None, list, tuple])
def test_an_array_is_written_as_it_was(writer, make: Callable, container: type | None) -> None:
    array, change = make()
    given, same = array, ARRAY
    if container is not None:
        given = container([container([array, array]), container([array, array])])
        same = np.stack([ARRAY] * 4).reshape(2, 2, *ARRAY.shape)
    expected = type(writer)()
    for kind in ("histogram", "tensor", "image") if container is None else ("histogram", "tensor"):
        KINDS[kind](writer, given)
        KINDS[kind](expected, same)
    change()
    assert writer.values == expected.values


def test_a_number_of_jax_may_be_donated(writer) -> None:
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for shape, dtype in (((), jnp.float32), ((1, 1), jnp.int32)):
        rate = jnp.full(shape, 2, dtype)
        writer.scalar("rate", rate, 1)
        writer.tensor("rate", rate, 1)
        step(rate).block_until_ready()
        assert rate.is_deleted()
    scalars, tensors = writer.values[::2], writer.values[1::2]
    assert [value.simple_value for value in scalars] == [2, 2]
    assert [len(value.tensor.tensor_shape.dim) for value in tensors] == [0, 2]


def test_a_number_of_jax_that_was_deleted_is_an_error(writer) -> None:
    gone = jnp.float32(1) * 2
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        writer.scalar("rate", gone, 1)


def test_what_is_none_is_refused_at_once(writer) -> None:
    for kind in ("histogram", "image", "text", "tensor", "mesh"):
        with pytest.raises(TypeError, match=f"{kind} summary 'x.* got None"):
            getattr(writer, kind)("x", None, 1)
    with pytest.raises(TypeError, match="audio summary 'x' .* got None"):
        writer.audio("x", None, 1, 8000)
    with pytest.raises(TypeError, match="labels of pr_curve summary 'x' .* got None"):
        writer.pr_curve("x", None, [0.5], 1)


def test_masked_arrays_and_ragged_lists_are_refused_at_once(writer) -> None:
    for write in KINDS.values():
        with pytest.raises(TypeError, match=r"masked array"):
            write(writer, np.ma.masked_greater(ARRAY, 0.5))
    for kind in ("histogram", "image", "tensor"):
        for ragged in ([[1.0], [2.0, 3.0]], [np.zeros((8, 9, 3)), np.zeros((4, 9, 3))]):
            with pytest.raises(ValueError, match="'x'.*same shape"):
                KINDS[kind](writer, ragged)


def test_an_error_of_its_block_is_not_hidden_by_its_own(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        with FileWriter(tmp_path) as file:
            file.scalar("loss", Late(np.zeros(3)), 1)
            raise KeyboardInterrupt
    (note,) = raised.value.__notes__
    assert note.startswith("and then the writer failed to close: ValueError")
    assert "'loss'" in note
    assert file.closed
    with pytest.raises(ValueError, match="must be a single number"), FileWriter(tmp_path) as file:
        file.scalar("loss", Late(np.zeros(3)), 1)


@pytest.mark.parametrize(
    "make", [FileWriter, lambda path: MultiWriter([FileWriter(path)])], ids=["file", "multi"]
)
def test_a_bad_number_among_scalars_costs_no_other(tmp_path: Path, make: Callable) -> None:
    writer = make(tmp_path)
    writer.scalars({"a": 1.0, "bad": Late(np.zeros(2)), "b": 2.0}, 3)
    with pytest.raises(ValueError, match="must be a single number") as raised:
        writer.close()
    assert "while encoding the scalar 'bad'" in raised.value.__notes__
    scalars = events.read(tmp_path).only.scalars
    assert {tag: (*s.steps, *s.values) for tag, s in scalars.items()} == {"a": (3, 1), "b": (3, 2)}


def test_metrics_of_a_run_need_a_step(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as file:
        file.scalar("accuracy", 0.5, 9)
        with pytest.raises(TypeError, match="step of the metrics"):
            file.hparams({"rate": 0.1}, {"accuracy": 0.9})
        file.hparams({"rate": 0.1})
        file.hparams({"rate": 0.1}, {"accuracy": 0.9}, 10)
    assert events.read(tmp_path).only.scalars["accuracy"].steps.tolist() == [9, 10]
    assert [report.folds for report in events.check(tmp_path)] == [[]]
