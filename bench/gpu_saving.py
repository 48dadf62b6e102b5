"""An asynchronous save of a state of 500 MB on a GPU: how long the loop stalls.

That is what a save adds to the step that follows it, which changes all of the state; JAX takes its
buffers over, PyTorch changes it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

import runhooks as rh
from bench import saving
from bench.gpu import jax_device, jax_wait, sized, torch_device, torch_wait
from bench.measure import Contender, Effort
from bench.table import Table, tabulated

COPY, OURS = "a copy of the state on the host", "runhooks, asynchronous"
CPU_ITEMS = saving.PART_ITEMS // 10
Stall = Callable[[Path], float]


def jax_copy(arrays: saving.State) -> Stall:
    held = {name: jnp.array(array) for name, array in arrays.items()}

    def copy(_: Path) -> float:
        new = saving.step(held)  # JAX keeps what it has copied once
        jax_wait(new)
        return saving.timed(lambda: [np.array(it) for it in new.values()]).blocked * 1e3

    return copy


def torch_state(arrays: saving.State) -> tuple[dict[str, Any], Callable[[], None]]:
    """Tensors on the device, and a step that adds to them."""
    tensors = {name: torch.tensor(it, device=torch_device()) for name, it in arrays.items()}

    def train_step() -> None:
        for tensor in tensors.values():
            tensor.add_(1)

    return tensors, train_step


def torch_copy(arrays: saving.State) -> Stall:
    tensors, _ = torch_state(arrays)

    def copy(_: Path) -> float:
        return (
            saving.timed(
                lambda: [torch.empty_like(it, device="cpu").copy_(it) for it in tensors.values()]
            ).blocked
            * 1e3
        )

    return copy


def ours_torch(arrays: saving.State) -> Stall:
    tensors, train_step = torch_state(arrays)
    model = torch.nn.Module()
    for name, tensor in tensors.items():
        model.register_buffer(name, tensor)
    session = rh.Session(rh.torch.graph(train_step, model=model))
    saver = rh.Saver(asynchronous=True)

    def make_step() -> None:
        session.run("train_op")
        session.wait()

    return saving.stalled(make_step, lambda at: saver.save(session, at / "model.ckpt"), saver.wait)


def torch_distributed(arrays: saving.State) -> Stall:
    tensors, train_step = torch_state(arrays)
    async_save, futures = saving.torch_async_save(), []

    def make_step() -> None:
        train_step()
        torch_wait()

    def save(folder: Path) -> None:
        futures.append(async_save(tensors, checkpoint_id=folder))

    return saving.stalled(make_step, save, lambda: futures.pop().result())


def compared(
    framework: str,
    device: str,
    contenders: Callable[[saving.State], list[Contender]],
    effort: Effort,
) -> Table:
    arrays = saving.state(effort.amount(sized(device, saving.PART_ITEMS, CPU_ITEMS)))
    size = sum(array.nbytes for array in arrays.values()) / 1e6
    title = f"a save of {size:,.0f} MB and the step after it, less a step, {framework} on {device}"
    stalls = saving.in_turns(contenders(arrays), effort.turns(7))
    return tabulated(title, "ms", *stalls)


def of_jax(arrays: saving.State) -> list[Contender]:
    return [
        Contender(COPY, jax_copy(arrays), role="limit"),
        Contender(OURS, saving.beside_steps(arrays, "jax")),
        Contender("orbax AsyncCheckpointer", saving.orbax_beside_steps(arrays), role="peer"),
    ]


def of_torch(arrays: saving.State) -> list[Contender]:
    peer = "torch.distributed.checkpoint.async_save"
    return [
        Contender(COPY, torch_copy(arrays), role="limit"),
        Contender(OURS, ours_torch(arrays)),
        Contender(peer, torch_distributed(arrays), role="peer"),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    yield compared("JAX", jax_device(), of_jax, effort)
    yield compared("PyTorch", torch_device(), of_torch, effort)
