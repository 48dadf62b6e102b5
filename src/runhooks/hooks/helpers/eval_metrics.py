"""``EvalMetrics``: reads the scalars of evaluations while they are being written."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from runhooks.errors import DataLossError
from runhooks.events import Event, SessionLog, SessionStatus, read_records
from runhooks.events.place import place
from runhooks.events.reading.find import find_files
from runhooks.events.reading.opened import open_to_scan
from runhooks.stores.path import AnyPath, path_of
from runhooks.summary import Summary

_log = logging.getLogger("runhooks")


class EvalMetrics:
    """The scalars of all event files in ``eval_dir``, which need not exist yet."""

    def __init__(self, eval_dir: str | os.PathLike[str]) -> None:
        self._dir = path_of(place(output_dir=eval_dir))
        self._read_to: dict[AnyPath, int | None] = {}  # None: damaged from there on
        self._by_step: dict[int, dict[str, float]] = {}

    def read(self) -> dict[int, dict[str, float]]:
        """Return the scalars by tag, by step, in the order of steps; reads only what is new.

        The last value counts where a tag was written several times at a step. Values of steps that
        a later session made again do not count. A damaged file is read up to the damage, with a
        warning.
        """
        for path in find_files(self._dir):
            with suppress(FileNotFoundError):  # there is none yet, or somebody has just removed it
                self._read_on(path)
        return dict(sorted(self._by_step.items()))

    def _read_on(self, path: AnyPath) -> None:
        start = self._read_to.get(path, 0)
        if start is None:
            return
        with open_to_scan(path) as file:
            file.seek(start)
            try:
                for record in read_records(file, str(path)):
                    self._take(Event.FromString(record))
                    self._read_to[path] = file.tell()
            except (DataLossError, ValueError) as error:
                self._read_to[path] = None
                _log.warning("the rest of %s is not read: %s", path, error)

    def _take(self, event: Event) -> None:
        if isinstance(event.session_log, bytes):
            if SessionLog.FromString(event.session_log).status == SessionStatus.START:
                for step in [step for step in self._by_step if step >= event.step]:
                    del self._by_step[step]
        elif isinstance(event.summary, bytes):
            values = {value.tag: value.data for value in Summary.FromString(event.summary)}
            scalars = {tag: data for tag, data in values.items() if isinstance(data, float)}
            if scalars:
                self._by_step.setdefault(event.step, {}).update(scalars)
