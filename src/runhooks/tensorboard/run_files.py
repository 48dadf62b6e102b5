"""``RunFiles``: the event files of one run, its own and those of its sub-runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runhooks import arguments
from runhooks.contexts import contextmanager
from runhooks.errors import add_note
from runhooks.events import Message
from runhooks.events.writing.failures import call_all, error_text
from runhooks.summary import Summary, Value
from runhooks.summary.tag_and_step import text_tag
from runhooks.tensorboard.file_writer import FileWriter, NoFileWriter

_DIRECTORY = "runs"
_STARTED = "%b%d_%H-%M-%S"


class RunFiles:
    """Opens, flushes and closes the event files of a run.

    ``file_writer`` is the file of the run, and ``all_writers`` has it and those of the sub-runs by
    directory; both are None when they are closed. What is added afterwards goes to new files.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        logdir: str | os.PathLike[str] | None = None,
        comet_config: dict[str, Any] | None = None,
    ) -> None:
        if comet_config is not None and not comet_config.get("disabled", False):
            raise ValueError(
                f"comet_config must be None or have 'disabled': True, got {comet_config!r}: "
                "nothing is sent to Comet from here"
            )
        arguments.directory(log_dir=log_dir or None, logdir=logdir or None)
        self.log_dir = log_dir or logdir or _default_directory(comment)
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self._writes_to_disk = write_to_disk
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._sub_runs: dict[tuple[str, str], FileWriter] = {}  # by main tag and tag
        self._groups: dict[str, dict[str, None]] = {}  # main tags, by directory of their sub-run
        self._get_file_writer()

    @property
    def logdir(self) -> str | os.PathLike[str]:
        """The directory, as ``log_dir``."""
        return self.log_dir

    def get_logdir(self) -> str | os.PathLike[str]:
        """Return the directory of the event file, as it was given."""
        return self.log_dir

    @property
    def closed(self) -> bool:
        """Whether it is closed; what is added then opens new files."""
        return self.file_writer is None

    def add_summary(
        self,
        summary: Summary | Message | bytes,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add ``summary``, of Protocol Buffers or ours: so hooks write with a ``SummaryWriter``."""
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add ``session_log``, of Protocol Buffers or ours."""
        self._get_file_writer().add_session_log(session_log, global_step)

    def flush(self) -> None:
        """Return when everything added before is written, in all sub-runs too.

        Raises the first error of the background, if any.
        """
        if self.all_writers is not None:
            call_all(writer.flush for writer in self.all_writers.values())

    def close(self) -> None:
        """Flush, and close the files; closing twice is fine.

        Raises the first error of the background, if any; all files are closed nevertheless.
        """
        if self.all_writers is not None:
            writers, self.file_writer, self.all_writers = self.all_writers, None, None
            self._sub_runs.clear()
            call_all(writer.close for writer in writers.values())

    @contextmanager
    def use_metadata(
        self, *, global_step: int | None = None, walltime: float | None = None
    ) -> Iterator[Self]:
        """Let what is added in the ``with`` block have this step and time if it is given none.

        Raises:
            ValueError: Neither is given, or the block is in another one.
        """
        with self._get_file_writer().use_metadata(global_step=global_step, walltime=walltime):
            yield self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as error:
            if exc is None:
                raise
            add_note(exc, f"and then the writer failed to close: {error_text(error)}")

    def _get_file_writer(self) -> FileWriter:
        """Return the file of the run, a new one after ``close``.

        PyTorch Lightning, among others, calls it.
        """
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = self._open(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.start_session(int(self.purge_step))
                self.purge_step = None
        return self.file_writer

    def _open_sub_run(self, main_tag: str, tag: str) -> FileWriter:
        """Return the file of a group of scalars."""
        directory = f"{self._get_file_writer().get_logdir()}/{main_tag.replace('/', '_')}_{tag}"
        writers = self.all_writers
        assert writers is not None, "the line above has opened it"
        if directory not in writers:
            writers[directory] = self._open(directory)
        self._sub_runs[main_tag, tag] = writers[directory]
        self._groups.setdefault(directory, {})[main_tag] = None
        return writers[directory]

    def _open(self, directory: str | os.PathLike[str]) -> FileWriter:
        if not self._writes_to_disk:
            return NoFileWriter(directory)
        return FileWriter(directory, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, value: Value | list[Value], global_step: Any, walltime: float | None) -> None:
        values = value if isinstance(value, list) else [value]
        for one in values:
            text_tag(one.tag)
        self.add_summary(Summary(values), global_step, walltime)


def _default_directory(comment: str) -> str:
    started = datetime.now().strftime(_STARTED)
    return str(Path(_DIRECTORY, f"{started}_{socket.gethostname()}{comment}"))
