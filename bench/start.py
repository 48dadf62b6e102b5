"""How long a program takes until its first step has run, and what JAX compiles for it.

Each start makes the session, or jits the step, anew: JAX has forgotten all that it had compiled.
The state is there, and the modules are imported: the topic ``imports`` has these.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

import runhooks as rh
from bench.measure import NEVER, Contender, Effort, alternate
from bench.table import Table, tabulated

TURNS = 5
BARE, SESSION, HOOKS = "jax.jit, bare loop", "MonitoredSession", "MonitoredSession, five hooks"
MOST = 1.05  # times the bare loop
TAKEN_OVER = (
    "XLA takes longer to compile a step that takes over the buffers of its state, which the bare "
    "loop does not ask for; and the session copies the state that it begins with."
)
MOST_COMPILED = 3  # more than the bare loop


class Convolutions(nn.Module):
    """The network of flax's MNIST example."""

    @nn.compact
    def __call__(self, images: Any) -> Any:
        x = _pooled(nn.relu(nn.Conv(32, (3, 3))(images)))
        x = _pooled(nn.relu(nn.Conv(64, (3, 3))(x)))
        return nn.Dense(10)(nn.relu(nn.Dense(256)(x.reshape(len(x), -1))))


def _pooled(x: Any) -> Any:
    return nn.avg_pool(x, (2, 2), (2, 2))  # type: ignore[no-untyped-call]


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
        y = nn.LayerNorm()(x)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(y)))


class Transformer(nn.Module):
    layers: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(256, 64)(tokens)
        for _ in range(self.layers):
            x = Block()(x)
        return nn.Dense(256)(nn.LayerNorm()(x))


class Program(NamedTuple):
    """What is trained: the state that it begins with, and a batch."""

    state: TrainState
    batch: tuple[Any, Any]


def program(network: nn.Module, inputs: Any, labels: Any) -> Program:
    params = jax.jit(network.init)(jax.random.key(0), inputs)["params"]
    create: Any = TrainState.create
    state = create(apply_fn=network.apply, params=params, tx=optax.adam(1e-3))
    return Program(jax.block_until_ready(state), (inputs, labels))  # type: ignore[no-untyped-call]


def mnist() -> Program:
    return program(Convolutions(), np.ones((8, 28, 28, 1), np.float32), np.zeros(8, np.int32))


def transformer(layers: int) -> Program:
    tokens = np.ones((2, 16), np.int32)
    return program(Transformer(layers), tokens, tokens)


def new_step() -> Callable[[Any, Any, Any], Any]:
    """Return the step as a function that JAX has not seen."""

    def train_step(state: Any, inputs: Any, labels: Any) -> Any:
        def loss_of(params: Any) -> Any:
            scores = state.apply_fn({"params": params}, inputs)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

        loss, grads = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=grads), {"loss": loss}

    return train_step


def bare(it: Program) -> None:
    jax.block_until_ready(jax.jit(new_step())(it.state, *it.batch))  # type: ignore[no-untyped-call]


def monitored(hooks: Callable[[str], Sequence[rh.SessionRunHook]], it: Program) -> None:
    graph = rh.jax.graph(new_step(), state=it.state, data=[it.batch])
    with (
        tempfile.TemporaryDirectory() as folder,
        graph.as_default(),
        rh.MonitoredSession(hooks=hooks(folder)) as session,
    ):
        jax.block_until_ready(session.run(["train_op", "loss"]))  # type: ignore[no-untyped-call]


def no_hooks(folder: str) -> list[rh.SessionRunHook]:
    return []


def five_hooks(folder: str) -> list[rh.SessionRunHook]:
    """Five of most programs, of which two are due in the first run."""
    rh.summary.scalar("loss")
    return [
        rh.StepCounterHook(every_n_steps=100, output_dir=folder),
        rh.SummarySaverHook(100, output_dir=folder, summary_op=rh.summary.merge_all()),
        rh.LoggingTensorHook(["loss"], every_n_iter=100, formatter=lambda _: ""),
        rh.NanTensorHook("loss"),
        rh.StopAtStepHook(last_step=NEVER),
    ]


class Compilations:
    """Counts what XLA compiles in this process."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        self.count += event.endswith("backend_compile_duration")


def start(
    begin: Callable[[Program], None], compilations: Compilations, it: Program
) -> tuple[float, int]:
    """Return the milliseconds until the first step has run, and how much was compiled."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    before, then = compilations.count, time.perf_counter()
    begin(it)
    return 1e3 * (time.perf_counter() - then), compilations.count - before


def tables(effort: Effort) -> Iterator[Table]:
    compilations = Compilations()
    programs = {
        "flax MNIST": mnist(),
        "a transformer of 12 layers": transformer(2 if effort.quick else 12),
    }
    begins: dict[str, Callable[[Program], None]] = {
        BARE: bare,
        SESSION: partial(monitored, no_hooks),
        HOOKS: partial(monitored, five_hooks),
    }
    for title, it in programs.items():
        for begin in begins.values():  # what is imported, and JAX's own small functions
            begin(it)
        contenders = [
            Contender(name, partial(start, begin, compilations), BARE)
            for name, begin in begins.items()
        ]
        found = alternate(contenders, effort.turns(TURNS), it)
        millisecs = {name: [one[0] for one in found[name]] for name in begins}
        goals = [
            contenders[0]._replace(over=None, role="limit"),
            *[contender._replace(most=MOST, why=TAKEN_OVER) for contender in contenders[1:]],
        ]
        yield tabulated(f"the first step of {title} has run", "ms", goals, millisecs)
        counted = {name: [float(one[1]) for one in found[name]] for name in begins}
        goals[1:] = [it._replace(most=None, budget=MOST_COMPILED) for it in goals[1:]]
        yield tabulated(f"compiled for the first step of {title}", "compilations", goals, counted)
