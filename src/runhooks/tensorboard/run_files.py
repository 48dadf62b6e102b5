"""``RunFiles``: the event files of one run and its sub-runs, and the scalars written to them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from runhooks import arguments, clock, events
from runhooks.arrays.values import NUMBERS
from runhooks.errors import add_note, call_all, error_text
from runhooks.events import Message
from runhooks.events.place import inside
from runhooks.stores import hidden
from runhooks.summary import Summary, SummaryMetadata, Value
from runhooks.summary.kinds.scalar import described_scalar_value, kept_number, tensor_scalar_value
from runhooks.summary.message import text_tag
from runhooks.tensorboard.file_writer import FileWriter, NoFileWriter


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
        self.log_dir = hidden(log_dir or logdir or _default_directory(comment))
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
        directory = inside(
            self._get_file_writer().get_logdir(), f"{main_tag.replace('/', '_')}_{tag}"
        )
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


class ScalarMethods(RunFiles):
    """The methods of a ``SummaryWriter`` for numbers."""

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
        *,
        display_name: str = "",
        summary_description: str = "",
    ) -> None:
        """Add a number.

        Args:
            tag: Its tag.
            scalar_value: A number, or an array or list of size 1 on any device, which is read in
                the background.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
            new_style: Whether to write it as a tensor, as TensorFlow 2 does.
            double_precision: Whether such a tensor is float64, not float32.
            display_name: Stands in place of the tag in TensorBoard.
            summary_description: A description in Markdown.
        """
        writer = self.file_writer or self._get_file_writer()
        if (
            type(scalar_value) in NUMBERS
            and type(global_step) is int
            and type(tag) is str
            and not global_step >> 63
            and walltime is writer.default_wall_time is None
            and not (new_style or display_name or summary_description)
        ):
            writer.put(tag, scalar_value, global_step, clock.wall())  # nothing to check or to read
            return
        value = _kept(text_tag(tag), scalar_value)
        if new_style:
            made = tensor_scalar_value(tag, value, double_precision=double_precision)
            self._add(made, global_step, walltime)
        elif display_name or summary_description:
            metadata = SummaryMetadata(
                display_name=display_name, summary_description=summary_description
            )
            self._add(described_scalar_value(tag, value, metadata), global_step, walltime)
        else:
            writer.put(tag, value, *writer.at(global_step, walltime))

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add several numbers that TensorBoard shows in one chart, each in a sub-run of its own.

        Args:
            main_tag: The tag of all of them.
            tag_scalar_dict: The numbers, by what their sub-runs are called: ``main_tag_name``, in
                which ``/`` of ``main_tag`` is ``_``.
            global_step: Their step; None: 0.
            walltime: Their time, in seconds since the epoch; None: now.
        """
        text_tag(main_tag)
        if not isinstance(tag_scalar_dict, Mapping):
            raise TypeError(
                f"tag_scalar_dict must be a dict of numbers by name, got {tag_scalar_dict!r}"
            )
        step, wall_time = self._get_file_writer().at(global_step, walltime)
        for tag, scalar_value in tag_scalar_dict.items():
            value = _kept(main_tag, scalar_value)
            writer = self._sub_runs.get((main_tag, tag)) or self._open_sub_run(main_tag, tag)
            writer.put(main_tag, value, step, wall_time)

    @property
    def scalar_dict(self) -> dict[str, list[list[float]]]:
        """What ``add_scalars`` has written: by directory, lists of the time, step and value."""
        if not self._writes_to_disk:
            return {}
        self.flush()
        return {directory: _points(directory, tags) for directory, tags in self._groups.items()}

    def export_scalars_to_json(self, path: str | os.PathLike[str]) -> None:
        """Write ``scalar_dict`` to the file ``path``."""
        Path(path).write_text(json.dumps(self.scalar_dict), encoding="utf-8")


def _points(directory: str, tags: Iterable[str]) -> list[list[float]]:
    scalars = events.read(directory)["."].scalars
    found: list[list[float]] = []
    for tag in tags:
        steps, numbers, wall_times = scalars[tag]
        # The shortest number that is the same float32: what was given, not 0.10000000149.
        values = (float(str(number)) for number in numbers.astype(np.float32))
        found += map(list, zip(wall_times.tolist(), steps.tolist(), values, strict=True))
    return found


def _kept(tag: str, value: Any) -> Any:
    if getattr(value, "is_cpu", False) and value.numel() == 1:
        value = value.item()  # a tensor of PyTorch, which nobody has to wait for
    if type(value) in NUMBERS:
        return value
    with refusals():
        return kept_number(tag, _parsed(tag, value) if isinstance(value, str) else value)


def _parsed(tag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the value of scalar {tag!r} must be a number, got {text!r}") from None
