"""A sweep of trials in one process: what a trial takes after the first, and what memory is left.

A trial has a seed and a rate of its own, both in its state. One jitted function, or one graph with
a session for each trial, is compiled once for all; what is made anew for each trial is compiled
anew.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import runhooks as rh
from bench.measure import Contender, Effort
from bench.saving_memory import megabytes
from bench.start import Compilations
from bench.table import Growth, Table, tabulated

TRIALS, STEPS, SIZE, LAYERS = 200, 20, 128, 4
OPTIMIZER = optax.adam(1e-3)

Trial = Callable[[int], None]


def new_step() -> Callable[..., Any]:
    def train_step(params: Any, moments: Any, rate: Any, inputs: Any, labels: Any) -> Any:
        def loss_of(params: Any) -> Any:
            x = inputs
            for kernel in params:
                x = jnp.tanh(x @ kernel)
            return ((x - labels) ** 2).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, moments = OPTIMIZER.update(grads, moments, params)
        scaled = jax.tree.map(lambda update: update * rate, updates)
        return optax.apply_updates(params, scaled), moments, rate, {"loss": loss}

    return train_step


def initial(number: int) -> Any:
    random = np.random.default_rng(number)
    shape = (SIZE, SIZE)
    return [jnp.asarray(random.normal(size=shape) / 20, jnp.float32) for _ in range(LAYERS)]


def data() -> list[tuple[Any, Any]]:
    batch = np.ones((8, SIZE), np.float32)
    return [(batch, batch)] * STEPS


def trained(graph: Any) -> None:
    hooks = [
        rh.LoggingTensorHook(["loss"], every_n_iter=5, formatter=lambda _: ""),
        rh.NanTensorHook("loss"),
    ]
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run("train_op")


def jitted(step: Any) -> Trial:
    def trial(number: int) -> None:
        params, rate = initial(number), jnp.float32(1 + number)
        moments = OPTIMIZER.init(params)
        for inputs, labels in data():
            params, moments, rate, metrics = step(params, moments, rate, inputs, labels)
        jax.block_until_ready(metrics)  # type: ignore[no-untyped-call]

    return trial


def one_step() -> Trial:
    return jitted(jax.jit(new_step(), donate_argnums=(0, 1)))


def step_each() -> Trial:
    return lambda number: jitted(jax.jit(new_step(), donate_argnums=(0, 1)))(number)


def one_graph() -> Trial:
    current = 0
    graph = rh.jax.graph(
        new_step(),
        params=lambda: initial(current),
        moments=lambda: OPTIMIZER.init(initial(current)),
        rate=lambda: jnp.float32(1 + current),
        data=data(),
    )

    def trial(number: int) -> None:
        nonlocal current
        current = number
        trained(graph)

    return trial


def graph_each() -> Trial:
    def trial(number: int) -> None:
        params, rate = initial(number), jnp.float32(1 + number)
        moments = OPTIMIZER.init(params)
        graph = rh.jax.graph(new_step(), params=params, moments=moments, rate=rate, data=data())
        trained(graph)

    return trial


ONE_STEP, STEP_EACH = "one jitted step", "a jitted step for each trial"
ONE_GRAPH, GRAPH_EACH = "one graph, a session for each trial", "a graph for each trial"
MADE = {ONE_STEP: one_step, STEP_EACH: step_each, ONE_GRAPH: one_graph, GRAPH_EACH: graph_each}


def sweep(name: str, trials: int) -> tuple[float, int, float, float]:
    """Make a sweep in this process.

    Return the milliseconds of a trial after the first, how much all have compiled, and the
    megabytes that the process has after ``few(trials)`` trials and at the end.
    """
    compilations, trial, secs = Compilations(), MADE[name](), []
    for number in range(trials):
        if number == few(trials):
            begin = megabytes("VmRSS")
        then = time.perf_counter()
        trial(number)
        secs.append(time.perf_counter() - then)
    return 1e3 * statistics.median(secs[1:]), compilations.count, begin, megabytes("VmRSS")


def few(trials: int) -> int:
    return max(1, trials // 10)


def tables(effort: Effort) -> Iterator[Table | Growth]:
    trials, root = 4 if effort.quick else TRIALS, Path(__file__).parents[1]
    found: dict[str, list[float]] = {}
    for name in MADE:
        command = [sys.executable, "-m", "bench.sweep", name, str(trials)]
        done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = [float(word) for word in done.stdout.splitlines()[-1].split()]
    contenders = [
        Contender(ONE_STEP, print, role="limit"),
        Contender(ONE_GRAPH, print, ONE_STEP),
        Contender(STEP_EACH, print, role="limit"),
        Contender(GRAPH_EACH, print, STEP_EACH),
    ]

    def table(title: str, unit: str, column: int) -> Table:
        rounds = {name: [figures[column]] for name, figures in found.items()}
        return tabulated(title, unit, contenders, rounds)

    yield table("a trial after the first", "ms", 0)
    yield table(f"compiled in {trials} trials", "compilations", 1)
    title = "the memory of the process"
    sizes, sized = [few(trials), trials], [table(title, "MB", 2), table(title, "MB", 3)]
    yield Growth(title=title, axis="trials", sizes=sizes, tables=sized)


if __name__ == "__main__":
    print(*sweep(sys.argv[1], int(sys.argv[2])))
