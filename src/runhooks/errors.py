"""The errors of a run, of an input, of a checkpoint and of an event file.

Wrong arguments are plain ``ValueError``, ``TypeError`` and ``RuntimeError``. What can go wrong in
spite of right arguments has a class here, named as in ``tf.errors``:

    Exception
    └── OpError                     what a run, a file or a peer answered
        ├── OutOfRangeError         an input has no more elements: the loop ends well
        ├── AbortedError            the session is lost: it is replaced and the run repeated
        ├── UnavailableError        likewise: what the session talks to went away
            ├── DeadlineExceededError   waited longer than allowed
        ├── FailedPreconditionError the session is not in a state to do this
        ├── NotFoundError           no such checkpoint, no such file
        └── DataLossError           a file is damaged
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

#: How lines begin that say where an error of TensorFlow's arose, or what was logged before it.
_PLACES = ("\t [[", "Recent warning", "Original stack", "Traceback")


class OpError(Exception):
    """An error out of a run.

    Made as ``OpError(message)`` or, as TensorFlow makes them, ``OpError(node_def, op, message)``.
    Fields: ``message``; ``op``, the operation it arose in, or None; ``path``, the file or folder
    it is about, or None.
    """

    def __init__(self, *args: Any, path: str | None = None) -> None:
        if len(args) not in (1, 3):
            raise TypeError(
                f"{type(self).__name__} takes (message) or (node_def, op, message), "
                f"got {len(args)} arguments"
            )
        self.node_def = args[0] if len(args) == 3 else None
        self.op = args[1] if len(args) == 3 else None
        self.message = str(args[-1])
        self.path = path
        super().__init__(self.message)


class OutOfRangeError(OpError):
    """An input has no more elements. A monitored session takes it as a good end of the loop."""


_ends_of_input: list[type[BaseException]] = [OutOfRangeError]


def register_end_of_input(kind: type[BaseException]) -> None:
    """Take ``kind``, an error of a framework, for what ``OutOfRangeError`` is, from now on."""
    if kind not in _ends_of_input:
        _ends_of_input.append(kind)


def ends_of_input() -> tuple[type[BaseException], ...]:
    """``OutOfRangeError``, and the errors of frameworks in use that mean the same."""
    return tuple(_ends_of_input)


def good_ends() -> tuple[type[BaseException], ...]:
    """The errors that end a loop well."""
    return (*_ends_of_input, StopIteration)


class AbortedError(OpError):
    """The session is lost. A monitored session replaces it and repeats the run."""


class UnavailableError(OpError):
    """What the session talks to went away. A monitored session replaces it, as for AbortedError."""


class DeadlineExceededError(OpError):
    """Something was waited for longer than allowed."""


class FailedPreconditionError(OpError):
    """The session is not in a state to do what was asked."""


class NotFoundError(OpError):
    """There is no such checkpoint or file; ``path`` says where it was looked for."""


class DataLossError(OpError):
    """A file is damaged; ``path`` says which."""


class NanLossDuringTrainingError(RuntimeError):
    """A loss was NaN. ``tensor``: its name; ``step``: of the run that made ``value``, or None.

    ``shown``: the value as the message has it.
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


def described(error: BaseException) -> str:
    """``repr(error)``; of an error of TensorFlow's, whose repr is empty, its kind and cause."""
    return (
        repr(error) if error.args or not str(error) else f"{type(error).__name__}({cause(error)!r})"
    )


def cause(error: BaseException) -> str:
    """What ``error`` says, or else its kind.

    Of TensorFlow's, in a line, less where in the program and in the graph it arose.
    """
    text = str(error).strip()
    if error.args or not text:
        return text or type(error).__name__
    after_places = text.rpartition("\nNode: ")
    lines = after_places[2].splitlines()[1:] if after_places[1] else text.splitlines()
    said = takewhile(lambda line: not line.startswith(_PLACES), lines)
    return " ".join(line.strip() for line in said if line.strip()) or text.splitlines()[0]
