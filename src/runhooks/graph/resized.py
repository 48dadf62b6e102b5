"""``Resized``: a checkpoint goes from one number of ranks to another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


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
