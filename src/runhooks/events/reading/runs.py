"""``Runs``: the runs found under a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from runhooks.events.reading.damage import Damage
from runhooks.events.reading.export import Exported
from runhooks.events.reading.find import FoundRun, find_runs
from runhooks.events.reading.run import Run
from runhooks.events.reading.run_contents import RunContents
from runhooks.events.reading.scalars import Scalars
from runhooks.events.reading.tag_registry import Wanted
from runhooks.events.reading.unknown_name import UnknownNameError


class Runs(Mapping[str, Run], Exported):
    """Names of runs, sorted, and the runs; made by ``read``."""

    def __init__(self, path: Path, wanted: Wanted, strict: bool, purge: bool) -> None:
        self._path = path
        self._wanted, self._strict, self._purge = wanted, strict, purge
        self._runs: dict[str, Run] = {}
        self.update()

    @property
    def path(self) -> Path:
        """What was read."""
        return self._path

    @property
    def only(self) -> Run:
        """The one run there is. Raises ValueError, naming the runs, if there is not exactly one."""
        if len(self._runs) != 1:
            names = ", ".join(map(repr, self._runs)) or "none"
            raise ValueError(f"{str(self._path)!r} must hold exactly one run, found {names}")
        return next(iter(self._runs.values()))

    @property
    def damages(self) -> list[Damage]:
        """What could not be read, of all runs."""
        return [damage for run in self._runs.values() for damage in run.damages]

    def update(self) -> int:
        """Read what was written since, new runs and files too; return the number of new points.

        Runs that are gone are dropped; what became of files that changed is said at ``Run.update``.

        Raises OSError if a file cannot be read; DataLossError in strict mode at a new damage.
        """
        self._runs = {
            name: self._runs[name] if name in self._runs else self._opened(name, found)
            for name, found in find_runs(self._path).items()
        }
        return sum(run.update() for run in self._runs.values())

    def scalars_of_runs(self) -> Mapping[str, Mapping[str, Scalars]]:
        return {name: run.scalars for name, run in self._runs.items()}

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
        return Run(name, found, RunContents(self._wanted, self._strict, self._purge))
