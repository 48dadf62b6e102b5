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
        seed: What the random states of all ranks begin with, in place of those that were saved:
            the same for all, and always the same for one checkpoint.
        differing: The names of arrays of which some ranks had other values than the chief, whose
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

#: The names of two objects of graphs of ``rh.torch``: the states of random generators, and the
#: gradients that are not applied yet.
RANDOM_STATES, PENDING = "random", "gradients"

#: The key in the state of a module under which the versions of its classes stand; other objects
#: have none.
MODULE_VERSIONS = "metadata"

#: In their states, ``(STANDS_FOR_ARRAY, name)`` stands in the place of the array of that name;
#: ``(STANDS_FOR_ARRAY, name, strides)`` for one that lies in memory in another order than C's.
STANDS_FOR_ARRAY = "runhooks.tensor"


def stands_for_array(value: Any) -> bool:
    """Return whether ``value``, in a state, stands in the place of an array."""
    if type(value) is not tuple or len(value) not in (2, 3):
        return False
    return type(value[0]) is str and value[0] == STANDS_FOR_ARRAY


Arrays = Mapping[str, NDArray[Any]]


class StatefulObjects(Protocol):
    """Objects that the steps of a graph change in place, beside the variables of a session.

    No session holds them: all sessions of a graph change the same ones, and only a snapshot brings
    back an earlier state.
    """

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
            share: Which of several ranks this is; arrays of which it has a part to write are then
                ``ShardedArray`` objects. None: a process alone.

        Raises:
            TypeError: If a state holds a value that cannot be saved.
        """
        ...

    def is_spread(self, name: str) -> bool:
        """Return whether ranks hold parts of the value that is fetched by ``name``.

        To have it in whole, each of them must ask for it.
        """
        ...

    def owns(self, name: str) -> bool:
        """Return whether an array of that name would be one of theirs."""
        ...

    def preserved(self) -> AbstractContextManager[None]:
        """Put random generators and training modes back at the end of the ``with`` block.

        Inside another such block, random generators go on until that one ends.
        """
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
        """Return the present values of a part of the objects, as ``RawSession.read``.

        Raises:
            ValueError: If nothing has that name.
        """
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
        """Keep moving averages of parts of the objects as the object ``name`` of their own.

        They are saved as ``"<name>/<part>"``. The same call returns the same averages again.

        Returns:
            A function that moves them towards the present values, as ``Engine.average`` by its
            argument.

        Raises:
            ValueError: If nothing has the name of a part, or if ``name`` is taken.
        """
        ...
