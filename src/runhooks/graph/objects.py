"""``StatefulObjects``: the user's modules, optimizers and the like, which steps change in place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.shards import Share


class Resized(NamedTuple):
    """What a rank has to know of a checkpoint that another number of ranks has saved.

    Attributes:
        saved: How many ranks saved it.
        size: How many there are now.
        rank: Which of these this one is.
        seed: What random states begin with in place of those saved; the same on all ranks.
        differing: The names of arrays of which ranks had other values than the chief, whose
            values all get now.
    """

    saved: int
    size: int
    rank: int
    seed: int
    differing: frozenset[str] = frozenset()

    def seed_of(self, name: str) -> int:
        """Return the seed of this rank's random generator ``name``: 63 bits."""
        entropy = [self.seed, self.rank, *name.encode()]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1


#: The prefix of the names of their states in a snapshot.
OBJECT_STATES = "objects/"

#: Two objects of graphs of ``rh.torch``: the states of random generators, and gradients that are
#: not applied yet.
RANDOM_STATES, PENDING = "random", "gradients"

#: The key of the versions of its classes in the state of a module.
MODULE_VERSIONS = "metadata"

#: In their states, ``(STANDS_FOR_ARRAY, name)`` stands for the array of that name, and
#: ``(STANDS_FOR_ARRAY, name, strides)`` for one that is not in C's order in memory.
STANDS_FOR_ARRAY = "runhooks.tensor"


def stands_for_array(value: Any) -> bool:
    """Return whether ``value``, in a state, stands in the place of an array."""
    if type(value) is not tuple or len(value) not in (2, 3):
        return False
    return type(value[0]) is str and value[0] == STANDS_FOR_ARRAY


Arrays = Mapping[str, NDArray[Any]]


class StatefulObjects(Protocol):
    """Objects that the steps of a graph change in place: the same ones in all its sessions."""

    @property
    def names(self) -> list[str]:
        """The names of those that checkpoints hold."""
        ...

    @property
    def changed(self) -> bool:
        """Whether a step was begun since they were last loaded or ``settle`` was called."""
        ...

    def settle(self) -> None:
        """Take their present state as the one that a session begins with."""
        ...

    def save(
        self, into: Arrays | None = None, share: Share | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return their arrays, named ``"<object>/<path>"``, and the rest of their states by object.

        Args:
            into: As for ``Engine.to_host``, by name.
            share: Which of several ranks this is; arrays of which it writes a part are then
                ``ShardedArray`` objects. None: a process alone.

        Raises:
            TypeError: If a state holds a value that cannot be saved.
        """
        ...

    def is_spread(self, name: str) -> bool:
        """Return whether ranks hold parts of the value ``name``, so that all must ask for it."""
        ...

    def owns(self, name: str) -> bool:
        """Return whether an array of that name would be one of theirs."""
        ...

    def preserved(self) -> AbstractContextManager[None]:
        """Put random generators and training modes back at the end of the outermost such block."""
        ...

    def loader(
        self,
        arrays: Mapping[str, Any],
        states: Mapping[str, Any],
        only: Collection[str] | None,
        resized: Resized | None = None,
        *,
        is_given: bool = False,
    ) -> Callable[[], None]:
        """Return a function that loads what ``save`` returned.

        Args:
            arrays: Arrays of NumPy, or ``ArraySource`` objects, by name.
            states: The rest.
            only: The names of the objects to load. None: all.
            resized: If another number of ranks has saved them.
            is_given: Whether nothing else uses the memory of ``arrays``.

        Raises:
            ValueError: If the states do not fit the objects. Nothing is changed then.
        """
        ...

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the present values of a part of the objects, as ``RawSession.read``."""
        ...

    def assigner(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """Return a function that assigns ``values``, by the names that ``read`` returns.

        Raises:
            ValueError: If nothing has a name, or if a value does not fit.
        """
        ...

    def substituted(self, places: Mapping[str, str]) -> AbstractContextManager[None]:
        """As ``RawSession.substituted``, of parts of the objects and their averages."""
        ...

    def averages(self, name: str, parts: Collection[str]) -> Callable[[float], None]:
        """Keep moving averages of ``parts``, saved as ``"<name>/<part>"``; the same if asked again.

        Returns:
            What moves them towards the present values, by a weight as of ``Engine.average``.

        Raises:
            ValueError: If nothing has the name of a part, or if ``name`` is taken.
        """
        ...
