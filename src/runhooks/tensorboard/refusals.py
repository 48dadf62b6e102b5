"""The errors of arguments, which are also of the types that the originals raise."""

from __future__ import annotations

from collections.abc import Iterator

from runhooks.contexts import contextmanager


class ArgumentError(ValueError, AssertionError):
    """An argument has a wrong value; the originals raise AssertionError."""


class ArgumentTypeError(TypeError, NotImplementedError):
    """An argument has a wrong type; the originals raise NotImplementedError."""


@contextmanager
def refusals() -> Iterator[None]:
    """Let what is wrong with an argument be raised as one of the errors above.

    Only around the checks: an error of the background, which a call raises too, stays as it is.
    """
    try:
        yield
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from None
