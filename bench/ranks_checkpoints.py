"""What the checkpoint of many ranks costs beside its data: the commit, and the restore of one rank.

Each rank has a part of each array, of 32 bytes, and the chief alone one more array. The ranks write
their parts one after the other, so that the commit and the restore of one rank have the machine to
themselves; each is a process of its own. A rank alone writes one file, and its commit is all of the
save. Of two ranks that restore, each merges the parts of half of those that have saved, array by
array; beside it, safetensors loads the same files, and NumPy joins the parts. No file of ours is
mapped into memory, as none is on a network file system. S3 is moto on this machine: the seconds
there are mostly those of the server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from bench.measure import Contender, Effort
from bench.stores import s3_server
from bench.table import Growth, Table, tabulated
from runhooks.arrays.shards import Shard, ShardedArray, loaded_from
from runhooks.checkpoint import tensors
from runhooks.checkpoint.files import place_of
from runhooks.checkpoint.format import begun_manifest, content_of
from runhooks.checkpoint.group import read_for, write_together
from runhooks.checkpoint.tensors import COMMIT
from runhooks.contract import Snapshot
from runhooks.ranks import Group, LocalGroup
from runhooks.stores.backend import Backend

RANKS = (1, 2, 8, 64, 512)
ARRAYS = (100, 1_000, 10_000)
ARRAYS_OF_MANY, RANKS_OF_MANY = 1_000, 64
LARGEST = (512, 10_000), (1_000, 3_000)  # ranks and arrays
STORE_RANKS, STORE_ARRAYS = (2, 8, 64), 1_000
ROWS, COLUMNS = 2, 4  # of a part
NAME = "model/layers.{:05}.weight"
MERGED, JOINED = "restore on two", "safetensors: load their files, and join"


MERGES = "Each part is compared with the checksum of its piece, and found for itself."


class Cost(NamedTuple):
    """What something has cost one rank, of which ``memory`` is the most that was in use."""

    requests: int
    size: int
    secs: float
    memory: int = 0


#: What the tables show of it: a title, a unit, and how much that is.
FIGURES: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("requests", "requests", lambda cost: cost.requests),
    ("bytes read", "kB", lambda cost: cost.size / 1000),
    ("seconds", "ms", lambda cost: cost.secs * 1000),
    ("memory", "MB", lambda cost: cost.memory / 1e6),
)


class Count(ExitStack):
    """Counts, until it is closed, what is asked of a store, and the bytes that are read from it."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.requests = self.size = 0
        self._is_disk = "://" not in place
        for name in ("read", "stat", "objects", "put", "create"):
            counting = self._counting(getattr(Backend, name))
            self.enter_context(mock.patch.object(Backend, name, counting))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            result = method(*args)
            self.requests += 1
            self.size += len(result) if isinstance(result, bytes) else 0
            return result

        return counted

    def now(self) -> tuple[int, int]:
        """Return the requests to the store and to the disk, and the bytes that were read."""
        of_disk = dict(it.split(": ") for it in Path("/proc/self/io").read_text().splitlines())
        if not self._is_disk:
            return self.requests, self.size
        return int(of_disk["syscr"]), int(of_disk["rchar"])


class WrittenError(Exception):
    """A rank has written its part."""


class Part(LocalGroup):
    """A rank that is told what the chief has said, and ends when it has written its part."""

    def __init__(self, chief: Chief, rank: int) -> None:
        super().__init__(rank, chief.size)
        self._chief = chief

    def agree(self, name: str, value: str, conclude: Any, timeout_secs: Any = None) -> str:
        if name.endswith("begins"):
            return self._chief.begun
        self._chief.values.append(value)
        raise WrittenError


class Chief(LocalGroup):
    """The chief, which lets the others write their parts when it has written its own."""

    def __init__(self, size: int, write: Callable[[Group], object], count: Count) -> None:
        super().__init__(0, size)
        self._write, self._count = write, count
        self.begun = ""
        self.values: list[str] = []
        self._since = 0.0, 0, 0
        self.cost = Cost(0, 0, 0.0)

    def agree(self, name: str, value: str, conclude: Any, timeout_secs: Any = None) -> str:
        if name.endswith("begins"):
            self.begun = conclude([value] * self.size)
            return self.begun
        if name.endswith("is written"):
            self.values = [value]
            for rank in range(1, self.size):
                with suppress(WrittenError):
                    self._write(Part(self, rank))
            told: str = conclude(self.values)
            self._since = time.perf_counter(), *self._count.now()
            return told
        begin, requests, size = self._since
        now = self._count.now()
        secs = time.perf_counter() - begin
        self.cost = Cost(now[0] - requests, now[1] - size, secs)
        found: str = conclude([value] * self.size)
        return found


def content(rank: int, ranks: int, arrays: int) -> Any:
    shape, dtype = (ROWS * ranks, COLUMNS), np.dtype(np.float32)
    values = np.full((ROWS, COLUMNS), rank, dtype)
    shard = Shard((ROWS * rank, 0), values)
    array: Any = values if ranks == 1 else ShardedArray(shape, dtype, (shard,))
    parts: dict[str, Any] = dict.fromkeys(map(NAME.format, range(arrays)), array)
    return content_of(Snapshot({"global_step": np.array([1]), **parts}, {"rank": rank}))


def save(place: str, ranks: int, arrays: int, count: Count) -> Cost:
    """Save a checkpoint; return what the commit has cost the chief."""
    path = place_of(place)

    def write(group: Group) -> None:
        write_together(group, path, content(group.rank, ranks, arrays), begun_manifest(1))

    chief = Chief(ranks, write, count)
    begin, start = time.perf_counter(), count.now()
    write(chief)
    if ranks > 1:
        return chief.cost
    now = count.now()
    return Cost(now[0] - start[0], now[1] - start[1], time.perf_counter() - begin)


def restore(place: str, ranks: int, saved: int, count: Count) -> Cost:
    """Restore one rank of ``ranks``, in the middle, of what ``saved`` ranks have saved."""
    path, group = place_of(place), LocalGroup(ranks // 2, ranks)
    Path("/proc/self/clear_refs").write_text("5")  # the most that was in use begins anew
    before, begin, start = _memory("VmRSS"), time.perf_counter(), count.now()
    arrays = read_for(group, path, in_parts=True).arrays
    read = partial(part_of, arrays, ranks, group.rank)
    for values in loaded_from(arrays, read, list(arrays)):
        assert values.size == 1 or values[0, 0] == group.rank * saved // ranks
    secs, now = time.perf_counter() - begin, count.now()
    return Cost(now[0] - start[0], now[1] - start[1], secs, _memory("VmHWM") - before)


def part_of(arrays: Mapping[str, Any], ranks: int, rank: int, name: str) -> Any:
    if name == "global_step":
        return arrays[name].read((0,), (1,))
    rows = arrays[name].shape[0] // ranks
    return arrays[name].read((rank * rows, 0), (rows, COLUMNS))


def join(place: str, arrays: int, saved: int, count: Count) -> Cost:
    """Load the files that rank 1 of two merges by safetensors, and join the parts of each array."""
    from safetensors.numpy import load_file

    folder = place_of(place)
    assert isinstance(folder, Path)
    begin = time.perf_counter()
    named = (f"attempt-*-{rank}.safetensors" for rank in range(saved // 2, saved))
    files = (
        [file for name in named for file in folder.glob(name)] if saved > 1 else [folder / COMMIT]
    )
    parts: dict[str, list[Any]] = {}
    for file in files:
        for key, part in load_file(file).items():
            parts.setdefault(key.partition("@")[0], []).append(part)
    whole = [np.concatenate(parts[NAME.format(number)]) for number in range(arrays)]
    assert all(len(it) == ROWS * len(files) for it in whole)
    return Cost(0, 0, time.perf_counter() - begin)


def _memory(of: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(it.split()[1]) * 1024 for it in lines if it.startswith(of))


def in_a_process(act: str, *args: Any) -> Cost:
    """Return what ``save`` or ``restore`` returns in a process of its own."""
    command = [sys.executable, "-m", "bench.ranks_checkpoints", act, *map(str, args)]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Cost(*json.loads(found.stdout))


def costs(folder: str, ranks: int, arrays: int, merges: bool = True) -> dict[str, Cost]:
    place = f"{folder}/ranks-{ranks}-{arrays}/model-1"
    found = {"commit": in_a_process("save", place, ranks, arrays)}
    found["restore on as many ranks"] = in_a_process("restore", place, ranks, ranks)
    found["restore on half as many"] = in_a_process("restore", place, max(ranks // 2, 1), ranks)
    if merges:
        found[MERGED] = in_a_process("restore", place, min(ranks, 2), ranks)
    if "://" not in place:
        if merges:
            found[JOINED] = in_a_process("join", place, arrays, ranks)
        shutil.rmtree(place)
    return found


def growths(
    where: str, axis: str, sizes: Sequence[int], found: Sequence[Mapping[str, Cost]]
) -> Iterator[Growth]:
    for title, unit, figure in FIGURES:
        made = []
        for of_size in found:
            shown = {name: figure(cost) for name, cost in of_size.items()}
            if title == "memory":
                shown.pop("commit")
            if title != "seconds":
                shown.pop(JOINED, None)
            made.append(_table(f"{title}, {where}", unit, shown))
        yield Growth(title=f"{title}, {where}", axis=axis, sizes=list(sizes), tables=made)


def _table(title: str, unit: str, figures: Mapping[str, float]) -> Table:
    contenders = [
        Contender(name, lambda _: None, role="peer", beside=MERGED, why=MERGES)
        if name == JOINED
        else Contender(name, lambda _: None)
        for name in figures
    ]
    return tabulated(title, unit, contenders, {name: [it] for name, it in figures.items()})


def tables(effort: Effort) -> Iterator[Growth | Table]:
    quick = effort.quick
    ranks, arrays = ((2, 8), (100, 300)) if quick else (RANKS, ARRAYS)
    fixed = 100 if quick else ARRAYS_OF_MANY
    with tempfile.TemporaryDirectory() as folder:
        found = [costs(folder, size, fixed) for size in ranks]
        yield from growths(f"{fixed:,} arrays on a disk", "ranks", ranks, found)
        many = 2 if quick else RANKS_OF_MANY
        found = [costs(folder, many, size) for size in arrays]
        yield from growths(f"{many} ranks on a disk", "arrays", arrays, found)
        for most, fixed in () if quick else LARGEST:
            where = f"{most:,} ranks and {fixed:,} arrays on a disk"
            for growth in growths(where, "", [most], [costs(folder, most, fixed, merges=False)]):
                yield from growth["tables"]
    with s3_server():
        of_store = (2, 4) if quick else STORE_RANKS
        fixed = 100 if quick else STORE_ARRAYS
        found = [costs("s3://bench", size, fixed) for size in of_store]
        yield from growths(f"{fixed:,} arrays in S3", "ranks", of_store, found)


if __name__ == "__main__":
    acts: dict[str, Callable[[str, int, int, Count], Cost]] = {
        "save": save,
        "restore": restore,
        "join": join,
    }
    act, place, ranks, other = sys.argv[1:]
    with Count(place) as count, mock.patch(f"{tensors.__name__}.mapped", return_value=None):
        print(json.dumps(acts[act](place, int(ranks), int(other), count)))
