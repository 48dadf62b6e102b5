"""``conformer``: makes the new value of a variable its own, if it is of the form of the old one.

Whoever has made an array may go on to change it, so that a variable takes a copy. It takes the
array itself if nobody else has it, as where a function returns what it has just computed. Python
counts the references to an object; a view, or a buffer that is exported, is one to its array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray

#: ``conform(old, new, alone)`` returns ``new`` as the variable holds it. ``alone``: whether nobody
#: has ``new`` but its caller.
Conform = Callable[[Any, Any, bool], Any]


class OtherFormError(Exception):
    """A new value is not of the form of the old one, or has to be converted to it."""


def conformer(value: Any) -> Conform:
    """Return the function for a variable that holds ``value``.

    It raises ``OtherFormError`` where the engine is to convert a value, or to refuse it.

    Args:
        value: A plain array, a number of NumPy, or dicts, lists and tuples of these.
    """
    if type(value) is dict:
        return _container_conformer(dict, value)
    if type(value) is list or type(value) is tuple:
        return _container_conformer(type(value), dict(enumerate(value)))
    return _array_conformer(value) if type(value) is ndarray else _number_conformer(value)


def _array_conformer(value: ndarray[Any, Any]) -> Conform:
    dtype, shape = value.dtype, value.shape

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if new is old:
            return old
        if type(new) is not ndarray or new.dtype != dtype or new.shape != shape:
            raise OtherFormError
        if not alone or not new.flags.owndata:
            new = np.array(new)
        new.setflags(False)
        return new

    return conform


def _number_conformer(value: np.generic) -> Conform:
    kind, dtype = type(value), value.dtype

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if type(new) is not kind or new.dtype != dtype:
            raise OtherFormError
        return new

    return conform


def _container_conformer(kind: type[Any], value: Mapping[Any, Any]) -> Conform:
    parts = [(key, *_form(part), conformer(part)) for key, part in value.items()]

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if type(new) is not kind or len(new) != len(parts):
            raise OtherFormError
        conformed = {}
        try:
            for key, dtype, shape, conform_part in parts:
                part = new[key]
                if dtype is None:
                    is_alone = alone and references(part) == IN_CONTAINER
                    part = conform_part(old[key], part, is_alone)
                elif part is not old[key]:
                    # What the function of an array does: a call for each would show.
                    if type(part) is not ndarray or part.dtype != dtype or part.shape != shape:
                        raise OtherFormError
                    if not alone or references(part) != IN_CONTAINER or not part.flags.owndata:
                        part = np.array(part)
                    part.setflags(False)
                conformed[key] = part
        except KeyError:
            raise OtherFormError from None
        return conformed if kind is dict else kind(conformed.values())

    return conform


def _form(value: Any) -> tuple[Any, Any]:
    return (value.dtype, value.shape) if type(value) is ndarray else (None, None)


def _uncounted(value: object) -> int:
    return -1


def _in_variable() -> int:
    value = object()
    return references(value)


def _in_container() -> int:
    values = {0: object()}
    counts = []
    for key in values:
        value = values[key]
        counts.append(references(value))
    return counts[0]


# Without a global lock, as in free-threaded Python, another thread's references may not show.
_has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()

#: Returns how often an object is referred to, counting the call; -1 where that cannot be told.
references: Callable[[object], int]
references = getattr(sys, "getrefcount", _uncounted) if _has_lock else _uncounted

#: That of a value which nobody has but a function, in a variable; as this Python counts it.
IN_VARIABLE = _in_variable() if references is not _uncounted else 0

#: That of one which it has in a variable and in a container.
IN_CONTAINER = _in_container() if references is not _uncounted else 0
