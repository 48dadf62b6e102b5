"""Tags and steps: one rule for each method of each writer, held to at the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    JsonLinesWriter,
    MemoryWriter,
    MultiWriter,
    SessionLog,
    Summary,
    Writer,
    scalar_value,
)

WRITERS: dict[str, Callable[[Path], Writer]] = {
    "file": FileWriter,
    "lines": lambda path: JsonLinesWriter(path / "metrics.jsonl"),
    "memory": lambda path: MemoryWriter(),
    "multi": lambda path: MultiWriter([FileWriter(path), MemoryWriter()]),
}

TAGGED: dict[str, Callable[[Writer, object, object], None]] = {
    "scalar": lambda writer, tag, step: writer.scalar(tag, 1.0, step),
    "scalars": lambda writer, tag, step: writer.scalars({tag: 1.0}, step),
    "histogram": lambda writer, tag, step: writer.histogram(tag, [1.0], step),
    "image": lambda writer, tag, step: writer.image(tag, [[1.0]], step),
    "audio": lambda writer, tag, step: writer.audio(tag, [0.5], step, 8000),
    "text": lambda writer, tag, step: writer.text(tag, "text", step),
    "tensor": lambda writer, tag, step: writer.tensor(tag, [1.0], step),
    "pr_curve": lambda writer, tag, step: writer.pr_curve(tag, [1], [0.5], step),
    "mesh": lambda writer, tag, step: writer.mesh(tag, [[0.0, 0.0, 0.0]], step),
}

LOSS = Summary([scalar_value("loss", 1.0)])

METHODS = {name: lambda w, step, m=method: m(w, "loss", step) for name, method in TAGGED.items()}
METHODS |= {
    "hparams": lambda writer, step: writer.hparams({"rate": 0.1}, {"loss": 1.0}, step),
    "add_summary": lambda writer, step: writer.add_summary(LOSS, step),
    "add_session_log": lambda writer, step: writer.add_session_log(SessionLog(), step),
}

STEPS = [
    7,
    np.int32(7),
    np.array([7]),
    jnp.int32(7),
    jnp.array([7]),
    torch.tensor(7),
    torch.tensor([[7]]),
    tf.constant(7),
    tf.Variable([7]),
]

NO_STEPS = [1.0, np.float32(1), "1", float("nan"), [1], np.zeros(2, int), torch.tensor(1.0)]
NO_STEPS += [jnp.float32(1), tf.Variable(1.0), tf.constant([1, 2]), np.zeros(0, int)]


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    with WRITERS[request.param](tmp_path) as writer:
        yield writer


def test_what_is_no_step_is_refused_at_once(writer: Writer) -> None:
    for name, method in METHODS.items():
        may_be_none = name.startswith("add_")
        for step in NO_STEPS if may_be_none else [*NO_STEPS, None]:
            with pytest.raises(TypeError, match="step of .* must be an integer"):
                method(writer, step)
        for beyond in (2**63, -(2**63) - 1, np.uint64(2**63)):
            with pytest.raises(ValueError, match="step of .* 64 bits"):
                method(writer, beyond)
    writer.flush()  # none of it was written


def test_what_is_no_tag_is_refused_at_once(writer: Writer) -> None:
    for name, method in TAGGED.items():
        for tag in (None, 3, b"loss", np.zeros(3)) if name != "scalars" else (None, 3, b"loss"):
            with pytest.raises(TypeError, match="tag must be a str"):
                method(writer, tag, 1)
        with pytest.raises(ValueError, match="tag must not be empty"):
            method(writer, "", 1)


def test_what_is_no_number_is_refused_at_once(writer: Writer) -> None:
    for value in (None, "0.5", b"1"):
        with pytest.raises(TypeError, match=f"scalar 'loss'.*{value!r}"):
            writer.scalar("loss", value, 1)
        with pytest.raises(TypeError, match=f"scalar 'loss'.*{value!r}"):
            writer.scalars({"rate": 0.5, "loss": value}, 1)
    with pytest.raises(TypeError, match="values must be a dict"):
        writer.scalars(1, {"loss": 0.5})  # type: ignore[arg-type]


def test_an_integer_of_any_library_is_a_step() -> None:
    with MemoryWriter() as writer:
        for step in STEPS:
            for method in METHODS.values():
                method(writer, step)
        assert {point.step for point in writer.points} == {7}


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_step_of_jax_is_written_as_it_was_although_it_was_donated(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    add_one = jax.jit(lambda step: step + 1, donate_argnums=0)
    step = jnp.zeros(shape, jnp.int32)
    with FileWriter(tmp_path) as file, JsonLinesWriter(tmp_path / "lines") as lines:
        for _ in range(50):
            for writer in (file, lines):
                writer.scalar("loss", 1.0, step)
                writer.scalars({"a": 1.0, "b": 2.0}, step)
            step = add_one(step)
    for scalars in events.read(tmp_path).only.scalars.values():
        assert scalars.steps.tolist() == list(range(50))
    assert (tmp_path / "lines").read_text().count('"step": 49,') == 3


def test_without_a_step_tensorflows_methods_write_at_zero(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_summary(LOSS)
    assert events.read(tmp_path).only.scalars["loss"].steps.tolist() == [0]
