"""``Framework``: the services of a framework that hooks and session layers use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from runhooks.errors import AbortedError, NanLossDuringTrainingError, UnavailableError


class Log(Protocol):
    """The part of a logger that hooks use."""

    def info(self, msg: str, *args: Any) -> None: ...

    def warning(self, msg: str, *args: Any) -> None: ...

    def error(self, msg: str, *args: Any) -> None: ...


class RunTrace(Protocol):
    """Traces single runs, by options and metadata that travel with them."""

    @property
    def options(self) -> Any:
        """The run options that a traced run needs."""
        ...

    def add(self, step: int, run_metadata: Any) -> Path:
        """Write the trace of the run that led to ``step``; return its path."""
        ...


class Framework:
    """The base of every framework, whether runhooks compiles graphs for it or it runs its own.

    The defaults are those of a framework that has nothing of the kind.
    """

    #: The name of the framework, for messages.
    name: ClassVar[str]

    #: How it is written in prose.
    title: ClassVar[str] = "another framework"

    #: Where hooks log: the logger whose level users of the framework have set.
    log: Log = logging.getLogger("runhooks")

    #: The error that a NaN loss raises: the one that programs of the framework catch.
    nan_loss_error: type[Exception] = NanLossDuringTrainingError

    #: Whether a hook may have summaries and nowhere to write them, as programs of the framework do.
    may_drop_summaries: ClassVar[bool] = False

    #: The errors of runs in a session that another thread closes.
    closed: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)

    def is_lost(self, error: BaseException) -> bool:
        """Return whether ``error`` means that the session is lost and may be replaced."""
        return isinstance(error, AbortedError | UnavailableError)

    def leaves(self, value: Any) -> dict[str, Any]:
        """Return the leaves of a value by path, such as ``"layers/0/kernel"``; ``""`` for an array.

        By default those in dicts, lists and tuples.
        """
        return dict(_leaves("", value))

    def memory(self) -> dict[str, int]:
        """Return the memory statistics of the devices, such as ``{"cuda:0/allocated_bytes": 1}``.

        Does not wait for the devices. Empty if none has any.
        """
        return {}

    def details(self) -> dict[str, str]:
        """Return what a report on an installation says of it, by title: its devices, say.

        May start the devices.
        """
        return {}

    def message(self, message: Any) -> Any:
        """Return a ``Summary`` or ``SessionLog`` as the framework's own writers take it."""
        return message

    def share_event_file(self, writer: Any, directory: str | os.PathLike[str]) -> None:
        """Let the framework's own writers of ``directory`` write to the file of ``writer``."""

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path] | None:
        """Start the framework's profiler.

        Args:
            folder: An existing directory for the profile.
            step: The first global step in the profile, for the name of its file.

        Returns:
            A function that stops the profiler and returns the path of the profile; None if the
            framework has no profiler.

        Raises:
            RuntimeError: If a profiler is running already.
        """
        return None

    def trace_runs(
        self,
        folder: Path,
        output_dir: str | os.PathLike[str],
        *,
        show_dataflow: bool,
        show_memory: bool,
    ) -> RunTrace | None:
        """Return an object that traces single runs, to be used in place of ``start_profile``.

        It writes files to ``folder``, and events to the event file of ``output_dir``.

        None, the default, if the profiler runs beside the session.
        """
        return None


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping | list | tuple):
        yield path, value
        return
    for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(f"{path}/{key}" if path else str(key), part)
