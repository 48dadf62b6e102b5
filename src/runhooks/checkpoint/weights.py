"""``Weights``: arrays in a checkpoint or another file that are read one by one."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from runhooks import arguments
from runhooks.checkpoint.adapt import is_run_state, other_names
from runhooks.checkpoint.best import Choice
from runhooks.checkpoint.format import (
    read_manifest,
    states_without_arrays,
    stream_arrays,
)
from runhooks.checkpoint.latest import AnyResult
from runhooks.checkpoint.manifest import ArraySpec
from runhooks.checkpoint.places import place_of
from runhooks.checkpoint.reading import printable
from runhooks.stores.path import AnyPath

Named = Iterator[tuple[str, NDArray[Any]]]


class Weights(ABC):
    """Arrays by name, in a checkpoint or a file.

    Attributes:
        path: Where they are.
        specs: Dtypes and shapes by name, in the order of the model where it is known.
        same: The names of arrays by other names that they have.
        of_run: Those that belong to the run, and not to its model: the global step, say.
    """

    path: AnyPath
    specs: Mapping[str, ArraySpec]
    same: Mapping[str, str] = MappingProxyType({})
    of_run: Collection[str] = frozenset()

    def __str__(self) -> str:
        return printable(self.path)

    @property
    def names(self) -> list[str]:
        """All names, those by which an array is known as well included."""
        return [*self.specs, *self.same]

    def spec(self, name: str) -> ArraySpec:
        """Return the dtype and the shape of an array."""
        return self.specs[self.same.get(name, name)]

    @abstractmethod
    def stream(self, wanted: Collection[str]) -> Named:
        """Yield the arrays ``wanted``, names in ``specs``, one after the other, in any order.

        Each is in memory of its own. Rely on none before the last: a checksum may follow.

        Raises:
            DataLossError: The file is damaged.
        """

    def read(self, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
        """Return the arrays ``wanted``, names in ``names``."""
        read = dict(self.stream({self.same.get(name, name) for name in wanted}))
        return {name: read[self.same.get(name, name)] for name in wanted}


class CheckpointWeights(Weights):
    """The arrays of one checkpoint of runhooks.

    Raises:
        NotFoundError, DataLossError, ValueError: As ``read_checkpoint`` does.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.specs = read_manifest(path).arrays
        states = states_without_arrays(path)
        known = other_names(states).items()
        self.same = {name: saved for name, saved in known if saved in self.specs}
        self.of_run = {name for name in self.specs if is_run_state(name, states)}

    def stream(self, wanted: Collection[str]) -> Named:
        return stream_arrays(self.path, wanted)


def read_weights(
    source: str | os.PathLike[str],
    choice: Choice,
    open_file: Callable[[AnyPath], Weights | None],
    read: Callable[[Weights], AnyResult],
) -> AnyResult:
    """Return what ``read`` makes of the weights that ``source`` and ``choice`` mean.

    Args:
        source: A file, a checkpoint, or a directory of checkpoints.
        choice: Which of these.
        open_file: Opens files of other formats; None for what it does not know.
        read: Called with the weights, again with those of an older checkpoint if a DataLossError
            shows that the newest is damaged.
    """
    arguments.given(source=source)
    arguments.directory(source=source)
    path = place_of(source)
    weights = open_file(path)
    if weights is not None:
        choice.check_alone(path)
        return read(weights)
    return choice.read(path, lambda it: read(CheckpointWeights(it)))
