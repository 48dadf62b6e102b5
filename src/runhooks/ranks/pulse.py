"""``Pulse``: a rank gives signs of life, and misses those of others."""

from __future__ import annotations

from runhooks.ranks.group import Group

#: Looks for a sign of life in ``Group.silence_secs``.
BEATS = 10


class Pulse:
    """Gives signs of life, and finds a rank that has given none for long.

    Rank 0 watches all, the others watch rank 0. What counts is how often this rank has looked: one
    that was stopped itself has not.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._beats = 0
        watched = [0] if group.rank else range(1, group.size)
        self._seen: dict[int, tuple[str | None, int]] = dict.fromkeys(watched, (None, 0))

    def beat(self) -> int | None:
        """Give a sign, look for those of the others, and return a rank that is silent."""
        self._beats += 1
        self._group.set(f"beat/{self._group.rank}", str(self._beats))
        signs = self._group.peek(f"beat/{rank}" for rank in self._seen)
        for (rank, (last, times)), sign in zip(list(self._seen.items()), signs, strict=True):
            self._seen[rank] = (sign, 0) if sign != last else (last, times + 1)
            if times + 1 > BEATS and sign == last:
                return rank
        return None
