"""A session that is nothing but values: all that a ``Saver`` needs of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

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

    def snapshot(self, into: Mapping[str, NDArray[Any]] | None = None) -> Snapshot:
        return Snapshot(dict(self.arrays), dict(self.states))

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        if only is None and snapshot.arrays.keys() != self.arrays.keys():
            unexpected = snapshot.arrays.keys() ^ self.arrays.keys()
            raise ValueError(f"missing or unexpected: {', '.join(sorted(unexpected))}")
        self.arrays.update(snapshot.arrays)
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
