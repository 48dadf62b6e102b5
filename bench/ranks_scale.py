"""How what ranks agree on grows, from 2 ranks to 1,000: requests to the store, bytes, seconds.

The store is a TCPStore of torch, or the coordination service of JAX, and the classes are those of
the library, without a training around them. Requests, bytes and connections are counted. One
process hosts the store; two more have the ranks as threads, so their seconds are upper bounds: from
some hundred ranks on, what takes time is that these threads take turns. Requests are messages to
the store: a ``get`` of torch, which waits first, is two. Bytes are those of keys and values. What
clients of JAX send by themselves, a heartbeat every few seconds, is not counted.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import runhooks as rh
from bench.measure import Contender, Effort
from bench.table import Growth, Table, tabulated
from runhooks.ranks import Group
from runhooks.ranks.decisions import BEATS

SIZES = (2, 16, 64, 256, 1_000)
PROCESSES = 2
HOOKS = 5

#: Messages that a method of a TCPStore sends; each of them but the first waits for keys.
MESSAGES = {
    "set": 1,
    "get": 2,
    "check": 1,
    "compare_set": 1,
    "multi_get": 2,
    "delete_key": 1,
    "queue_push": 1,
    "queue_pop": 2,
    "queue_len": 1,
}

#: Those of a client of JAX's coordination service, each of which is one message.
JAX_METHODS = (
    *("key_value_set", "key_value_try_get", "key_value_delete", "key_value_increment"),
    "blocking_key_value_get",
)
MESSAGES |= dict.fromkeys(JAX_METHODS, 1)

#: What ranks do, in this order, and what the tables call it.
PHASES = {
    "begin": "",
    "start": "the start: hooks and graphs are compared",
    "open": "a barrier",
    "first beat": "",  # rank 0 does not find all of them
    "beat": "a sign of life of each rank, and a look at others'",
    "stop": "one rank stops",
    "leave": "the end",
    "begin again": "",
    "start again": "",
    "stop all": "all ranks stop at once",
    "save": "the meetings of a save",
    "fail": "one rank fails",
}
NAMED = {phase: name for phase, name in PHASES.items() if name}


class Cost(NamedTuple):
    """What something has cost all ranks together."""

    requests: int
    size: int
    secs: float


#: What the tables show of it: a title, a unit, and how much that is.
FIGURES: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("requests", "requests", lambda cost: cost.requests),
    ("bytes", "kB", lambda cost: cost.size / 1000),
    ("seconds of the simulation", "s", lambda cost: cost.secs),
)


class Count:
    """What one connection has sent; it outlives the connection."""

    def __init__(self) -> None:
        self.requests = self.size = 0


class CountedStore:
    """A connection to a store, whose messages are counted, as are those of its clones.

    Each is used by one thread, so that no message is lost to the count.
    """

    def __init__(self, store: Any, counts: list[Count]) -> None:
        self._store = store
        self._counts = counts
        self._count = Count()
        counts.append(self._count)

    def clone(self) -> CountedStore:
        return CountedStore(self._store.clone(), self._counts)

    def set_timeout(self, timeout: Any) -> None:
        self._store.set_timeout(timeout)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, messages, count = getattr(self._store, name), MESSAGES[name], self._count

        def counted(*arguments: Any, **options: Any) -> Any:
            count.requests += messages  # also if it says that there is nothing
            result = method(*arguments, **options)
            count.size += _bytes(arguments) + _bytes(result)
            return result

        return counted


def _bytes(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


def torch_groups(
    port: int, ranks: Sequence[int], size: int, counts: list[Count]
) -> Sequence[Group]:
    from torch import distributed

    from runhooks.engines.torch.group import TorchGroup

    torch: Any = distributed
    stores = [torch.TCPStore("127.0.0.1", port, None, False) for _ in ranks]
    counted = [CountedStore(store, counts) for store in stores]
    return [TorchGroup(store, rank, size) for store, rank in zip(counted, ranks, strict=True)]


def jax_groups(port: int, ranks: Sequence[int], size: int, counts: list[Count]) -> Sequence[Group]:
    from runhooks.engines.jax.group import JaxGroup

    class Rank(JaxGroup):
        def __init__(self, rank: int) -> None:
            Group.__init__(self, rank, size)
            client = jaxlib().get_distributed_runtime_client(f"127.0.0.1:{port}", rank)
            client.connect()
            self._client = CountedStore(client, counts)

    with ThreadPoolExecutor(len(ranks)) as threads:  # a client waits for all others
        return list(threads.map(Rank, ranks))


def jaxlib() -> Any:
    return import_module("jax._src.lib")._jax


#: What makes some ranks of a runtime, whose host has a port.
GROUPS: Mapping[str, Callable[[int, Sequence[int], int, list[Count]], Sequence[Group]]] = {
    "torch": torch_groups,
    "jax": jax_groups,
}


class Ranks:
    """The ranks of one process, each with a thread of its own."""

    def __init__(self, port: int, ranks: Sequence[int], size: int, runtime: str = "torch") -> None:
        self.counts: list[Count] = []
        self.requests = self.size = 0
        self.groups = GROUPS[runtime](port, ranks, size, self.counts)
        self.last = size - 1
        self.threads = ThreadPoolExecutor(len(ranks))
        self.decisions: list[Any] = []
        with rh.Graph().as_default() as self.graph:
            rh.train.get_or_create_global_step().assign_add(1)
        hooks = [rh.StopAtStepHook(last_step=1000 + number) for number in range(HOOKS)]
        self.hooks: dict[str, Any] = {f"hook {number}": it for number, it in enumerate(hooks)}

    def together(self, act: Callable[[Any], object]) -> None:
        """Call ``act`` with each group, in a thread each."""
        list(self.threads.map(act, self.groups))

    def begin(self) -> None:
        from runhooks.ranks.decisions import Decisions

        self.decisions = [Decisions(group) for group in self.groups]
        for decisions in self.decisions:
            decisions.begin()

    def start(self) -> None:
        from runhooks.session.agreement import agree_on_start

        self.together(lambda group: agree_on_start(group, True, self.hooks, self.graph))
        for decisions in self.decisions:
            decisions.start()

    def stop(self, ranks: Sequence[int]) -> None:
        for group, decisions in zip(self.groups, self.decisions, strict=True):
            if group.rank in ranks:
                decisions.propose("stop", "SIGTERM")
        for decisions in self.decisions:
            decisions.wait_for_stop()

    def save(self) -> None:
        from runhooks.checkpoint.group import agreed, collected

        def meet(group: Any) -> None:
            agreed(group, "begins", lambda: {"attempt": "attempt-0123456789abcdef"})
            collected(group, "is written", lambda: {"step": 1, "file": [10**9, "0" * 16]})
            agreed(group, "is committed", lambda: {"global_step": 1, "time": 1.5e9})

        self.together(meet)

    def beat(self) -> None:
        from runhooks.ranks.decisions import Pulse

        for group in self.groups:
            Pulse(group).beat()

    def fail(self) -> None:
        for group in self.groups:
            if group.rank == self.last:
                group.fail("ValueError('it broke')")
        for group in self.groups:
            while group.exchange.failure is None:
                time.sleep(0.001)

    def leave(self) -> None:
        pairs = list(zip(self.groups, self.decisions, strict=True))
        list(self.threads.map(lambda pair: pair[1].leave(), pairs))

    def make(self, phase: str) -> Cost:
        """Do what is called so; return what it has cost these ranks."""
        acts: dict[str, Callable[[], object]] = {
            "begin": self.begin,
            "start": self.start,
            "open": lambda: self.together(lambda group: group.barrier("open")),
            "first beat": self.beat,
            "beat": self.beat,
            "stop": lambda: self.stop([self.last]),
            "stop all": lambda: self.stop(range(self.last + 1)),
            "save": self.save,
            "fail": self.fail,
            "leave": self.leave,
        }
        begin = time.perf_counter()
        acts[phase.removesuffix(" again")]()
        secs = time.perf_counter() - begin
        requests, size = self.requests, self.size
        self.requests = sum(it.requests for it in list(self.counts))
        self.size = sum(it.size for it in list(self.counts))
        return Cost(self.requests - requests, self.size - size, secs)


def be_ranks(runtime: str, port: int, first: int, last: int, size: int) -> None:
    """Be the ranks from ``first`` to before ``last``; do each phase that is read, tell its cost."""
    ranks = Ranks(port, range(first, last), size, runtime)
    print("connected", flush=True)
    for line in sys.stdin:
        print(json.dumps(ranks.make(line.strip())), flush=True)
    os._exit(0)  # without waiting for ranks that have failed


def costs(size: int, runtime: str = "torch") -> tuple[dict[str, Cost], float]:
    """Return what each phase has cost ``size`` ranks, and the connections that each has made."""
    host = hosted() if runtime == "torch" else hosted_by_jax(size)
    before, count = _open_files(), min(PROCESSES, size)
    bounds = [size * number // count for number in range(count + 1)]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.ranks_scale", runtime),
                *map(str, (host.port, *part, size)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"RES_OPTIONS": "timeout:1 attempts:1"},
        )
        for part in itertools.pairwise(bounds)
    ]
    for process in processes:
        _line_of(process)
    found = {}
    for phase in PHASES:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{phase}\n")
            process.stdin.flush()
        parts = [Cost(*json.loads(_line_of(process))) for process in processes]
        requests, sizes, secs = zip(*parts, strict=True)
        found[phase] = Cost(sum(requests), sum(sizes), max(secs))
        connections = _open_files() - before - 2 * count
    for process in processes:
        process.communicate()
    return found, connections / size


def hosted() -> Any:
    """Return a store that is reached by IPv4: torch asks a name server for other addresses."""
    from torch import distributed

    torch: Any = distributed
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    port, handle = listening.getsockname()[1], listening.detach()
    return torch.TCPStore(
        "127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=handle
    )


class JaxHost(NamedTuple):
    """The coordination service in this process."""

    port: int
    service: Any


def hosted_by_jax(size: int) -> JaxHost:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    service = jaxlib().get_distributed_runtime_service(f"127.0.0.1:{port}", size)
    return JaxHost(port, service)


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise RuntimeError("the ranks of a process have failed")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def tables(effort: Effort) -> Iterator[Growth]:
    yield from _growths(effort.sizes(*SIZES), "torch", "")
    yield from _growths(effort.sizes(*SIZES), "jax", ", JAX")


def _growths(sizes: Sequence[int], runtime: str, of: str) -> Iterator[Growth]:
    found = [costs(size, runtime) for size in sizes]
    for title, unit, figure in FIGURES:
        made = [
            _table(
                title + of, unit, {name: figure(of_size[phase]) for phase, name in NAMED.items()}
            )
            for of_size, _ in found
        ]
        yield Growth(title=title + of, axis="ranks", sizes=list(sizes), tables=made)
    beats_a_second = BEATS / Group.silence_secs
    made = []
    for of_size, connections in found:
        idle = {"requests a second": of_size["beat"].requests * beats_a_second}
        if runtime == "torch":  # clients of JAX in one process share a connection
            idle["connections of a rank, one of them torch's own"] = connections
        made.append(_table(f"idle{of}", "", idle))
    yield Growth(title=f"idle ranks{of}", axis="ranks", sizes=list(sizes), tables=made)


def _table(title: str, unit: str, figures: Mapping[str, float]) -> Table:
    contenders = [Contender(name, lambda _: None) for name in figures]
    return tabulated(title, unit, contenders, {name: [it] for name, it in figures.items()})


if __name__ == "__main__":
    be_ranks(sys.argv[1], *map(int, sys.argv[2:]))
