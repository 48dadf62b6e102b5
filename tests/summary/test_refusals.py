"""What cannot be written is refused by the call that gives it, whatever library it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import runhooks as rh
from runhooks import events
from runhooks.summary import FileWriter, Writer

LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "numpy": np.asarray,
    "jax": jnp.asarray,
    "torch": torch.as_tensor,
    "tensorflow": tf.constant,
    "list": lambda array: array.tolist(),
    "list of jax": lambda array: list(jnp.asarray(array)),
}

WRONG: dict[str, tuple[Callable[[Writer, Any], None], tuple[int, ...]]] = {
    "scalar": (lambda writer, array: writer.scalar("x", array, 1), (2,)),
    "scalars": (lambda writer, array: writer.scalars({"x": array}, 1), (2,)),
    "image": (lambda writer, array: writer.image("x", array, 1), (5,)),
    "image of an axis order": (lambda writer, array: writer.image("x", array, 1, "CHW"), (7, 8, 9)),
    "audio": (lambda writer, array: writer.audio("x", array, 1, 8000), (2, 100)),
    "pr_curve": (lambda writer, array: writer.pr_curve("x", [True], array, 1), (2,)),
    "mesh": (lambda writer, array: writer.mesh("x", array, 1), (5, 2)),
    "hparams": (lambda writer, array: writer.hparams({"a": 1}, {"x": array}, 1), (2,)),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_shape_or_dtype(tmp_path: Path, library: str) -> None:
    make = LIBRARIES[library]
    with FileWriter(tmp_path) as writer:
        for write, shape in WRONG.values():
            with pytest.raises(ValueError, match="'x"):
                write(writer, make(np.zeros(shape, np.float32)))
        for kind, right in {
            "scalar": (1,),
            "image": (4, 4),
            "histogram": (5,),
            "mesh": (5, 3),
        }.items():
            with pytest.raises(TypeError, match="'x.*complex"):
                getattr(writer, kind)("x", make(np.zeros(right, np.complex64)), 1)
        with pytest.raises(TypeError, match="'x.*complex"):
            writer.audio("x", make(np.zeros(9, np.complex64)), 1, 8000)
        with pytest.raises(TypeError, match="'x.*complex"):
            writer.pr_curve("x", [True], make(np.zeros(1, np.complex64)), 1)
        writer.scalar("after", 1.0, 1)
    assert list(events.read(tmp_path).only.scalars) == ["after"]


def test_a_traced_array(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:

        @jax.jit
        def step(x: jax.Array) -> jax.Array:
            writer.histogram("weights", x, 1)
            return x

        with pytest.raises(TypeError, match="'weights'.*JAX traces"):
            step(jnp.ones(3))


@pytest.fixture
def distributed(tmp_path: Path) -> Iterator[DTensor]:
    """A tensor that is spread over the processes of a group, which has one."""
    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield distribute_tensor(torch.ones(4, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
    finally:
        destroy_process_group()


def test_a_tensor_that_is_spread_over_processes(tmp_path: Path, distributed: DTensor) -> None:
    with FileWriter(tmp_path / "run") as writer:
        for kind in ("scalar", "histogram", "image", "tensor"):
            with pytest.raises(TypeError, match=f"{kind} .*'weights'.*full_tensor"):
                getattr(writer, kind)("weights", distributed, 1)
        writer.histogram("whole", distributed.full_tensor(), 1)
        writer.histogram("part", distributed.to_local(), 1)
    assert set(events.read(tmp_path / "run").only.histograms) == {"whole", "part"}


def test_a_histogram_in_a_graph_of_one_that_is_spread(tmp_path: Path, distributed: DTensor) -> None:
    graph = rh.Graph(engine="torch")
    with graph.as_default():
        weights = rh.call(lambda: {"fc": {"weight": distributed}}, name="weights")
        summary = rh.summary.histogram("params", weights)
        with rh.Session() as session, pytest.raises(TypeError, match="'params/fc/weight'.*full_t"):
            session.run(summary)


@pytest.mark.parametrize("owner", [rh, rh.summary])
def test_a_summary_writer_is_found_where_it_is(owner: Any) -> None:
    with pytest.raises(AttributeError, match=r": it is runhooks\.tensorboard\.SummaryWriter"):
        _ = owner.SummaryWriter


@pytest.mark.parametrize("wrong", [3, "losses"])
def test_a_step_in_the_place_of_collections_is_told(wrong: Any) -> None:
    with rh.Graph().as_default(), pytest.raises(TypeError, match="collections must be a list.*Fi"):
        rh.summary.scalar("loss", 0.5, wrong)
