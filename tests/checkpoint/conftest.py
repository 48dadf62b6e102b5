"""A session that is nothing but values: all that a ``Saver`` needs of one."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from runhooks.checkpoint import Snapshot
from runhooks.testing import FakeClock


class FakeSession:
    def __init__(self, **arrays: Any) -> None:
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.asarray(value) for name, value in arrays.items()
        }
        self.states: dict[str, Any] = {}
        self.loaded_only: Collection[str] | None = None
        self.checkpoint: str | None = None

    @property
    def global_step(self) -> int | None:
        step = self.arrays.get("global_step")
        return None if step is None else int(step)

    def run(self, fetches: Any) -> Any:
        return self.arrays[fetches]

    def snapshot(
        self, into: Mapping[str, NDArray[Any]] | None = None, share: Any = None
    ) -> Snapshot:
        return Snapshot(dict(self.arrays), dict(self.states))

    def saved_names(self) -> set[str]:
        return {name.partition("/")[0] for name in self.arrays}

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        if only is None and snapshot.arrays.keys() != self.arrays.keys():
            unexpected = snapshot.arrays.keys() ^ self.arrays.keys()
            raise ValueError(f"missing or unexpected: {', '.join(sorted(unexpected))}")
        self.arrays.update({name: np.asarray(it) for name, it in snapshot.arrays.items()})
        self.states = snapshot.states
        self.loaded_only = only


@pytest.fixture
def make_session() -> Callable[..., FakeSession]:
    """Makes a session of the arrays it is given."""
    return FakeSession


@pytest.fixture
def at_step() -> Callable[[int], FakeSession]:
    """Makes a session whose values tell at which step it is."""
    return lambda step: FakeSession(
        global_step=np.int64(step), weights=np.full(8, step, np.float32)
    )


@pytest.fixture
def fake_clock() -> Iterator[FakeClock]:
    with FakeClock() as fake:
        yield fake


class _SmallDisk(io.FileIO):
    """A file on a disk on which ``left[0]`` bytes are left."""

    left: ClassVar[list[int]] = []

    def write(self, data: Any, /) -> int:
        if not self.left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(memoryview(data)[: self.left[0]])
        self.left[0] -= written
        return written


@contextlib.contextmanager
def full_at(monkeypatch: pytest.MonkeyPatch, left: int) -> Iterator[None]:
    """Let ``left`` bytes be written to new files, and then no more."""
    with monkeypatch.context() as patch:
        patch.setattr(_SmallDisk, "left", [left])
        open_it = Path.open

        def small(path: Path, mode: str = "r", **options: Any) -> Any:
            if "x" not in mode:
                return open_it(path, mode, **options)
            return io.BufferedWriter(_SmallDisk(path, mode))

        patch.setattr(Path, "open", small)
        yield


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Makes a context in which so many bytes can be written to new files."""
    return lambda left: full_at(monkeypatch, left)
