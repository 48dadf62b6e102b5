"""``BoundedCache``: a cache of the values that were added last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST = 1000


class BoundedCache(dict[Key, Value]):
    """A dict that keeps the thousand items that were added last.

    A loop asks for the same few things again and again. One that never does, as
    ``session.run({f"w/{i}": w})``, would otherwise fill the memory.
    """

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread has been faster
                del self[next(iter(self))]

    def get_or_make(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return the value of ``key``, made now if there is none.

        The value of an unhashable key is not kept; the run reports what is wrong with such a key.
        """
        try:
            return self[key]
        except KeyError:
            value = self[key] = make()
            return value
        except TypeError:
            return make()
