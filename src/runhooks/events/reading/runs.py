"""``Runs``: the runs found under a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from runhooks.events.reading.export import Exported
from runhooks.events.reading.find import FoundRun, find_runs
from runhooks.events.reading.lazy_mapping import UnknownNameError
from runhooks.events.reading.results import Damage, Scalars
from runhooks.events.reading.row_decoder import RowDecoders
from runhooks.events.reading.run import Run
from runhooks.events.reading.run_contents import OnFold, RunContents
from runhooks.events.reading.tag_registry import TagNumbers, Wanted
from runhooks.stores.path import AnyPath


class Runs(Mapping[str, Run], Exported):
    """The runs that ``read`` found, by name, in natural order: ``r2`` before ``r10``."""

    def __init__(
        self, path: AnyPath, wanted: Wanted, strict: bool, purge: bool, fold: OnFold
    ) -> None:
        self._path = path
        rows = RowDecoders(TagNumbers(wanted))
        self._contents = partial(RunContents, rows, strict, purge, fold)
        self._contents()  # raises for a fold that there is not, though there may be no run
        self._unreadable: list[Damage] = []
        self._runs: dict[str, Run] = {}
        self.update()

    @property
    def path(self) -> AnyPath:
        """The path that was read."""
        return self._path

    @property
    def only(self) -> Run:
        """The only run. Raises ValueError, naming the runs, if there is not exactly one."""
        if len(self._runs) != 1:
            names = ", ".join(map(repr, self._runs)) or "none"
            raise ValueError(f"{str(self._path)!r} must hold exactly one run, found {names}")
        return next(iter(self._runs.values()))

    @property
    def damages(self) -> list[Damage]:
        """The records of all runs, and the directories, that could not be read."""
        return [*self._unreadable, *(d for run in self._runs.values() for d in run.damages)]

    def update(self) -> int:
        """Read what was added since, including new runs, and return the number of new points.

        Runs that are gone are dropped. See ``Run.update`` for files that changed.

        Raises:
            FileNotFoundError: If the path is gone.
            OSError: If a file cannot be read, in strict mode or if the path is a single file.
            DataLossError: If there is a new damage, in strict mode.
        """
        found_runs = find_runs(self._path)
        self._unreadable = found_runs.unreadable
        self._runs = {
            name: self._runs[name] if name in self._runs else self._opened(name, found)
            for name, found in found_runs.runs.items()
        }
        found = found_runs.runs
        return sum(run.update_files(found[name].files) for name, run in self._runs.items())

    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        return {name: run.scalars for name, run in self._runs.items()}

    def hparams_of_runs(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: run.hparams for name, run in self._runs.items()}

    def __getitem__(self, name: str) -> Run:
        if name not in self._runs:
            raise UnknownNameError(name, "run", tuple(self._runs))
        return self._runs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<Runs at {self._path}: {', '.join(map(repr, self._runs)) or 'none'}>"

    def _opened(self, name: str, found: FoundRun) -> Run:
        return Run(name, found, self._contents())
