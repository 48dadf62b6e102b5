"""The errors of what can fail with correct arguments.

Named as in ``tf.errors``:

    Exception
    ├── OpError
    │   ├── OutOfRangeError
    │   ├── AbortedError
    │   ├── UnavailableError
    │   ├── DeadlineExceededError
    │   ├── FailedPreconditionError
    │   ├── NotFoundError
    │   ├── PeerFailedError
    │   └── DataLossError
    └── RuntimeError
        └── NanLossDuringTrainingError
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any

# Lines of TensorFlow's errors that start so are not their message.
_PLACES = ("\t [[", "Recent warning", "Original stack", "Traceback")


class OpError(Exception):
    """An error from a run, a file or another process.

    Created as ``OpError(message)`` or ``OpError(node_def, op, message)``. Attributes are these, and
    ``path``, the file or directory that it is about; each but ``message`` may be None.
    """

    def __init__(self, *args: Any, path: str | None = None) -> None:
        if len(args) not in (1, 3):
            raise TypeError(
                f"{type(self).__name__} takes (message) or (node_def, op, message), "
                f"got {len(args)} arguments"
            )
        self.node_def, self.op, message = args if len(args) == 3 else (None, None, *args)
        self.message = str(message)
        self.path = path
        super().__init__(self.message)


class OutOfRangeError(OpError):
    """An input has no more elements; in a monitored session, the loop ends normally."""


_ends_of_input: list[type[BaseException]] = [OutOfRangeError]


def register_end_of_input(kind: type[BaseException]) -> None:
    """Treat ``kind`` like ``OutOfRangeError`` from now on."""
    if kind not in _ends_of_input:
        _ends_of_input.append(kind)


def ends_of_input() -> tuple[type[BaseException], ...]:
    return tuple(_ends_of_input)


def good_ends() -> tuple[type[BaseException], ...]:
    """Return the errors that end a loop normally."""
    return (*_ends_of_input, StopIteration)


class AbortedError(OpError):
    """The session is lost; a monitored session replaces it and repeats the run."""


class UnavailableError(OpError):
    """A connection was lost; treated like ``AbortedError``."""


class DeadlineExceededError(OpError):
    """A wait took longer than allowed."""


class FailedPreconditionError(OpError):
    """The session is in no state to do what was requested."""


class NotFoundError(OpError):
    """The checkpoint or file expected at ``path`` does not exist."""


class PeerFailedError(OpError):
    """Another ``rank`` has failed, so this one ends as well; ``cause`` is its error, in words."""

    def __init__(self, rank: int, cause: str) -> None:
        super().__init__(f"rank {rank} of this training has failed: {cause}")
        self.rank = rank
        self.cause = cause

    def __reduce__(self) -> tuple[type[PeerFailedError], tuple[int, str]]:
        return type(self), (self.rank, self.cause)


class DataLossError(OpError):
    """The file ``path`` is damaged."""


class NanLossDuringTrainingError(RuntimeError):
    """A loss, named ``tensor``, was NaN.

    Args:
        step: The global step of its run, or None.
        value: The loss, which may be an array or nested.
        shown: The value in the message.
    """

    def __init__(
        self,
        tensor: str = "loss",
        step: int | None = None,
        value: Any = float("nan"),
        shown: str = "nan",
    ) -> None:
        at = "" if step is None else f" at step {step}"
        super().__init__(f"NaN loss during training: {tensor!r}{at} is {shown}")
        self.tensor = tensor
        self.step = step
        self.value = value

    def __str__(self) -> str:
        return str(self.args[0])


def add_note(error: BaseException, text: str) -> None:
    """Add the note ``text`` once, if the class of ``error`` takes notes; never raises."""
    with suppress(Exception):
        if text not in getattr(error, "__notes__", ()):
            error.add_note(text)


def described(error: BaseException) -> str:
    """Return ``repr(error)``; where that is empty, as in TensorFlow, type and message.

    Never raises, nor does ``cause``.
    """
    try:
        if error.args or not str(error):
            return repr(error)
        return f"{type(error).__name__}({cause(error)!r})"
    except Exception:  # noqa: BLE001
        return type(error).__name__


def cause(error: BaseException) -> str:
    """Return the message of ``error``, one line of TensorFlow's; its type if it has none."""
    try:
        text = str(error).strip()
        if error.args or not text:
            return text or type(error).__name__
    except Exception:  # noqa: BLE001
        return type(error).__name__
    _, node, rest = text.rpartition("\nNode: ")
    lines = rest.splitlines()[1:] if node else rest.splitlines()
    said = takewhile(lambda line: not line.startswith(_PLACES), lines)
    return " ".join(line.strip() for line in said if line.strip()) or text.splitlines()[0]


def call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all ``calls``, then raise the first error, with notes on the others."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            if first is None:
                first = error
            else:
                add_note(first, f"and then failed: {described(error)}")
    if first is not None:
        raise first


def add_to_message(error: BaseException, text: str) -> None:
    if isinstance(error, OSError) and error.strerror is not None:
        error.strerror = f"{error.strerror}; {text}"
    else:
        add_note(error, text)


def error_text(error: BaseException) -> str:
    """Return type, message and notes in one line, for the log."""
    message = f"{type(error).__name__}: {cause(error)}"
    return "; ".join((message, *getattr(error, "__notes__", ()))).replace("\n", " ")
