"""``contextmanager``: as the one of ``contextlib``, for exceptions of every class.

That one sets ``__traceback__`` on an exception which leaves its block. An exception of a class that
refuses to be changed, such as a frozen dataclass, is then replaced by another, and the caller's
``except`` misses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

AnyArguments = ParamSpec("AnyArguments")
AnyValue = TypeVar("AnyValue")


def contextmanager(
    function: Callable[AnyArguments, Iterator[AnyValue]],
) -> Callable[AnyArguments, AbstractContextManager[AnyValue]]:
    """Return a function whose result runs the generator ``function`` around a ``with`` block."""

    @functools.wraps(function)
    def manage(
        *args: AnyArguments.args, **kwargs: AnyArguments.kwargs
    ) -> AbstractContextManager[AnyValue]:
        return _Context(functools.partial(function, *args, **kwargs))

    return manage


class _Context(AbstractContextManager[AnyValue], Generic[AnyValue]):
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._generator: Generator[AnyValue, None, None] = make()

    def __call__(self, decorated: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``decorated``, each call of it inside such a block, as with ``contextlib``."""

        @functools.wraps(decorated)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with _Context(self._make):
                return decorated(*args, **kwargs)

        return inside

    def __enter__(self) -> AnyValue:
        return next(self._generator)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if exc is None:
            next(self._generator, None)
            return False
        try:
            self._generator.throw(exc)
        except StopIteration as end:
            return end is not exc
        except BaseException as raised:
            # A generator turns a StopIteration that goes through it into a RuntimeError.
            if raised is exc or (isinstance(exc, StopIteration) and raised.__cause__ is exc):
                exc.with_traceback(traceback)
                return False
            raise
        raise RuntimeError("the generator went on after an exception")


@contextmanager
def hiding_errors(manager: AbstractContextManager[AnyValue]) -> Iterator[AnyValue]:
    """Enter ``manager``, made by another library's use of ``contextlib``, unaware of errors."""
    value = manager.__enter__()
    try:
        yield value
    finally:
        manager.__exit__(None, None, None)
