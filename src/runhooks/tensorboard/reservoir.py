"""Which items of many a reservoir keeps, as TensorBoard's does."""

from __future__ import annotations

import random


def kept_in_reservoir(count: int, size: int, keep_last: bool = True) -> list[int]:
    """Return the indices of the items that stay, in order, of ``count`` that come one by one.

    Each item has the same chance; which ones it hits is always the same.

    Args:
        count: How many items come.
        size: How many stay at most; 0: all.
        keep_last: Whether the last item always stays.
    """
    if not size or count <= size:
        return list(range(count))
    draw = random.Random(0).randint
    kept = list(range(size))
    for index in range(size, count):
        place = draw(0, index)
        if place < size:
            kept.pop(place)
            kept.append(index)
        elif keep_last:
            kept[-1] = index
    return kept
