"""Many records of one length, as the rows of one array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

#: Bytes that must follow the last record of a block, for rows to be whole words.
SLACK = 7


def take_rows(data: bytearray, starts: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
    """Return ``length`` bytes, and more up to a multiple of eight, from each of ``starts``."""
    width = -(-length // 8) * 8
    windows = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return windows[starts].view(np.uint8).reshape(-1, width)


def by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each length below 65535 and where it is; those above may come several times."""
    order = np.argsort(lengths.clip(0, 65535).astype(np.uint16), kind="stable")  # by radix
    in_order = lengths[order]
    bounds = np.flatnonzero(np.diff(in_order, prepend=-1, append=-1)).tolist()
    for begin, end in itertools.pairwise(bounds):
        yield int(in_order[begin]), order[begin:end]
