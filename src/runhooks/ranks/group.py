"""``Group``, its implementations in one process, and the current one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from runhooks import arguments
from runhooks.errors import PeerFailedError
from runhooks.ranks.exchange import Exchange, Meetings
from runhooks.ranks.store import RankStore

_T = TypeVar("_T")


class Group(RankStore):
    """The processes of one training, and what they do together through their store.

    Any thread may call any method; none uses collective operations. Every wait except that of
    ``listen`` ends: with the result, ``PeerFailedError`` if a rank has failed, ``UnavailableError``
    if the store does not answer for ``silence_secs`` or this process is a fork, or
    ``DeadlineExceededError``.

    Attributes:
        chief: The rank that writes event files and logs and commits checkpoints.
        barrier_secs: The default seconds that ranks wait for each other.
        error: What has failed on this rank beside its loop, or None.
        exchange: What the ranks tell each other.
    """

    #: Whether a run is one program of all ranks, so that all must ask for the same in it.
    runs_one_program: ClassVar[bool] = False

    #: Whether each rank is a process of its own.
    has_own_process: ClassVar[bool] = True

    barrier_secs: float = 600.0

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.chief = 0
        self.error: Exception | None = None
        self._training = 0
        self._begin()

    @property
    def is_chief(self) -> bool:
        """Whether this rank is the ``chief``."""
        return self.rank == self.chief

    def start_training(self) -> None:
        """Begin a new training, as all ranks do; earlier keys and failures do not count."""
        self.exchange.close()
        self._training += 1
        self.error = None
        self._begin()

    def set(self, key: str, value: str) -> None:
        """Set or replace ``key``."""
        self.request(self.store_set, self._key(key), value)

    def set_once(self, key: str, value: str) -> str:
        """Set ``key`` unless it is set, and return its value."""
        return self.request(self.store_set_once, self._key(key), value)

    def get(self, key: str) -> str | None:
        """Return the value of ``key``, or None."""
        return self.request(self.store_get, self._key(key))

    def peek(self, keys: Iterable[str]) -> list[str | None]:
        """``get`` several keys, for none of which anybody waits."""
        return self.request(self.store_peek, [self._key(key) for key in keys])

    def delete(self, key: str) -> None:
        """Delete ``key``, if it is set."""
        self.request(self.store_delete, self._key(key))

    def listen(self, key: str) -> str:
        """Return the value of ``key`` once it is set, without a limit, whatever fails."""
        return self.store_listen(self._key(key))

    def agree(
        self,
        name: str,
        value: str,
        conclude: Callable[[Sequence[str]], str],
        timeout_secs: float | None = None,
    ) -> str:
        """Return what rank 0 concludes from the values of all ranks, once all have called it.

        Args:
            name: What the ranks do; each calls it equally often under that name.
            value: What this rank contributes.
            conclude: Called on rank 0 with the values, in the order of the ranks. What it returns
                is to be short, as each rank reads it.
            timeout_secs: How many seconds to wait; None: ``barrier_secs``.

        Raises:
            PeerFailedError: A rank has failed, which may be this one.
            DeadlineExceededError: It names the ranks that are missing.
            UnavailableError: As the class says.
            Exception: On rank 0, whatever ``conclude`` raises.
        """
        arguments.instance(str, name=name, value=value)
        arguments.not_negative(timeout_secs=timeout_secs)
        secs = self.barrier_secs if timeout_secs is None else timeout_secs
        if self.size == 1:
            return conclude([value])
        return self._meetings.agree(name, value, conclude, secs)

    def total(self, name: str, numbers: Mapping[str, float], at: str) -> dict[str, float]:
        """Return the sums of the numbers of all ranks by name, once all have called it.

        A name that not all ranks have is left out. Each rank gets the same bits.

        Raises RuntimeError, which names two ranks, if their ``at``, such as "at step 3", differs;
        otherwise as ``agree``.
        """
        found = json.loads(self.agree(name, json.dumps([at, numbers]), _added))
        if "differing" in found:
            rank, there, here = found["differing"]
            raise RuntimeError(
                f"rank {rank} asks for {name!r} {there}, and rank 0 {here}: all ranks have to ask "
                "for it in the same runs"
            )
        return dict(found["sums"])

    def barrier(self, name: str, timeout_secs: float | None = None) -> None:
        """Return once all ranks have called it."""
        self.agree(name, "", lambda values: "", timeout_secs)

    def fail(self, cause: str, rank: int | None = None) -> None:
        """Tell all ranks that this one, or ``rank``, has failed. The first failure counts."""
        self.exchange.fail(self.rank if rank is None else rank, cause)

    def failure(self) -> PeerFailedError | None:
        """Return the failure of another rank, or of this one if another tells of it, or None."""
        found, told_by = self._failure()
        return None if found is None or found.rank == told_by == self.rank else found

    def failed_rank(self) -> int | None:
        """Return the rank that has failed, which may be this one, or None."""
        found, _ = self._failure()
        return None if found is None else found.rank

    def _begin(self) -> None:
        self.exchange = Exchange(self, self._key(""))
        self._meetings = Meetings(self, self.exchange)

    def _key(self, key: str) -> str:
        return f"runhooks/{self._training}/{key}"

    def _failure(self) -> tuple[PeerFailedError | None, int | None]:
        found = self.get("failed")
        if found is None:
            return None, None
        _, rank, cause, told_by = json.loads(found)
        return PeerFailedError(rank, cause), told_by


def _added(values: Sequence[str]) -> str:
    places, numbers = zip(*map(json.loads, values), strict=True)
    for rank, place in enumerate(places):
        if place != places[0]:
            return json.dumps({"differing": [rank, place, places[0]]})
    names = [it for it in numbers[0] if all(it in of for of in numbers)]
    return json.dumps({"sums": {it: sum(of[it] for of in numbers) for it in names}})


class LocalGroup(Group):
    """A rank in a thread of one process, for tests; ``together`` creates all ranks.

    ``memory``: what the ranks share; None: a new one.
    """

    runtime: ClassVar[str] = "one process"
    has_own_process: ClassVar[bool] = False

    def __init__(self, rank: int, size: int, memory: _Memory | None = None) -> None:
        super().__init__(rank, size)
        self._memory = memory or _Memory()

    @classmethod
    def together(cls, size: int) -> list[LocalGroup]:
        """Return the ``size`` ranks of a new group."""
        memory = _Memory()
        return [cls(rank, size, memory) for rank in range(size)]

    def request(self, act: Callable[..., _T], *args: Any) -> _T:
        self.check_process()
        return act(*args)

    def store_get(self, key: str) -> str | None:
        return self._memory.values.get(key)

    def store_set(self, key: str, value: str) -> None:
        with self._memory.changed:
            self._memory.values[key] = value
            self._memory.changed.notify_all()

    def store_set_once(self, key: str, value: str) -> str:
        with self._memory.changed:
            self._memory.changed.notify_all()
            return self._memory.values.setdefault(key, value)

    def store_delete(self, key: str) -> None:
        with self._memory.changed:
            self._memory.values.pop(key, None)

    def store_add(self, key: str) -> int:
        with self._memory.changed:
            self._memory.counts[key] += 1
            return self._memory.counts[key]

    def store_listen(self, key: str) -> str:
        with self._memory.changed:
            self._memory.changed.wait_for(lambda: key in self._memory.values)
            return self._memory.values[key]


class AloneGroup(LocalGroup):
    """A process that trains alone and waits for nobody."""

    def __init__(self) -> None:
        super().__init__(0, 1)


class _Memory:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.changed = threading.Condition()


class _Entered(threading.local):
    group: Group | None = None


_ALONE = AloneGroup()
_entered = _Entered()
_finders: list[Callable[[], Group | None]] = []


def find_group_with(find: Callable[[], Group | None]) -> None:
    """Ask ``find`` for the group of this process; it returns None if it has none."""
    _finders.append(find)


def current_group() -> Group:
    """Return the group of this process: of ``torch.distributed`` or ``jax.distributed``.

    An ``AloneGroup`` if neither is initialized, or has one process. One that was ``entered`` comes
    first.
    """
    if _entered.group is not None:
        return _entered.group
    found = (find() for find in _finders)
    return next((group for group in found if group is not None and group.size > 1), _ALONE)


@contextmanager
def entered(group: Group) -> Iterator[None]:
    """Make ``group`` the current group of this thread in the block."""
    before, _entered.group = _entered.group, group
    try:
        yield
    finally:
        _entered.group = before
