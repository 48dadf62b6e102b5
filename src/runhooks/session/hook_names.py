"""Checks and orders hooks, and names them for messages and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.graph.objects import OBJECT_STATES
from runhooks.session.inputs import INPUT_STATES

RESERVED_PREFIXES = (INPUT_STATES, OBJECT_STATES)

_log = logging.getLogger("runhooks")
_ALIKE = 0.85
_METHODS = ("begin", "after_create_session", "before_run", "after_run", "end")


def in_order(hooks: Iterable[Any] | None) -> list[SessionRunHook]:
    """Return the hooks as given, those whose ``first`` is true first, those with ``last`` last.

    Anything with the five methods is a hook, TensorFlow's among them.

    Raises:
        TypeError: For anything else.
    """
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of SessionRunHooks, got {hooks!r}")
    given = list(hooks or ())
    for hook in given:
        lacking = [name for name in _METHODS if not callable(getattr(hook, name, None))]
        if lacking or isinstance(hook, type):
            what = "a class: create it first" if isinstance(hook, type) else f"without {lacking}"
            raise TypeError(f"hooks must be SessionRunHooks, got {hook!r}, {what}")
        if not all(isinstance(getattr(hook, name, False), bool) for name in ("first", "last")):
            raise TypeError(
                f"hooks must be SessionRunHooks, got {hook!r}, whose first or last is not a bool: "
                f"in tests use runhooks.testing.RecordingHook, or Mock(spec={list(_METHODS)})"
            )
        if getattr(hook, "runs_on", "all") not in ("all", "chief"):
            raise ValueError(f"runs_on must be 'all' or 'chief', got {hook.runs_on!r} of {hook!r}")
    return sorted(given, key=_place)


def _warn_of_misspelled(kind: type) -> None:
    """Log methods of a class of hooks that nobody calls, and whose names are nearly of those."""
    own = [it for it in vars(kind) if it[0] != "_" and it not in dir(SessionRunHook)]
    for name in filter(lambda it: callable(getattr(kind, it)), own):
        import difflib  # it is slow to import, and few hooks have methods of their own

        if near := difflib.get_close_matches(name, _METHODS, 1, _ALIKE):
            _log.warning(
                "%s.%s is no method of a hook, and is never called: did you mean %s?",
                *(kind.__name__, name, near[0]),
            )


def _place(hook: Any) -> int:
    return bool(getattr(hook, "last", False)) - bool(getattr(hook, "first", False))


class HookNames:
    """Names hooks: by their own name or that of their class, with ``_1``, ``_2`` added if taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def name(self, hook: SessionRunHook) -> str:
        """Return the name of a hook that has none here yet.

        Raises:
            ValueError: If its own name is one by which checkpoints know something else.
        """
        own = getattr(hook, "hook_name", None)
        if isinstance(own, str) and own.startswith(RESERVED_PREFIXES):
            raise ValueError(
                f"hook_name must not begin with {' or '.join(map(repr, RESERVED_PREFIXES))}, by "
                f"which checkpoints know inputs and objects: got {own!r}"
            )
        _warn_of_misspelled(type(hook))
        name = kind = own if isinstance(own, str) and own else type(hook).__name__
        number = self._numbers.get(kind, 0)
        while name in self._taken:
            number += 1
            name = f"{kind}_{number}"
        self._numbers[kind] = number
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Let another hook have ``name``."""
        self._taken.discard(name)
        self._numbers.clear()  # they only save looking for a number
