"""The current group: that of the runtime that the program has initialized, or one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from runhooks.contexts import contextmanager
from runhooks.ranks.group import Group
from runhooks.ranks.local import AloneGroup


class _Stack(threading.local):
    def __init__(self) -> None:
        self.groups: list[Group] = []


_ALONE = AloneGroup()
_stack = _Stack()
_finders: list[Callable[[], Group | None]] = []


def find_group_with(find: Callable[[], Group | None]) -> None:
    """Ask ``find`` for the group of this process; it returns None if it has none."""
    _finders.append(find)


def current_group() -> Group:
    """Return the group of this process: of ``torch.distributed`` or ``jax.distributed``.

    An ``AloneGroup`` if neither is initialized, or has one process. Imports no framework.
    """
    if _stack.groups:
        return _stack.groups[-1]
    found = (find() for find in _finders)
    return next((group for group in found if group is not None and group.size > 1), _ALONE)


@contextmanager
def entered(group: Group) -> Iterator[None]:
    """Make ``group`` the current group of this thread inside the ``with`` block."""
    _stack.groups.append(group)
    try:
        yield
    finally:
        _stack.groups.pop()
