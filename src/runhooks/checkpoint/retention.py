"""Which checkpoints to keep: rules, which are values, and the series they are applied to.

A rule uses only what is on the disk. It decides by what was saved before each checkpoint or, like
``KeepLast`` and ``KeepBest``, ranks them. So a checkpoint that is unwanted once is never wanted
again, and a restarted run keeps what an undisturbed one keeps.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from runhooks import arguments, clock
from runhooks.checkpoint import drafts
from runhooks.checkpoint.format import Checkpoint, Content, write_content
from runhooks.checkpoint.group_save import write_together
from runhooks.checkpoint.latest import find_checkpoints
from runhooks.checkpoint.reading import printable
from runhooks.errors import add_note
from runhooks.ranks import Group
from runhooks.stores.path import AnyPath

_log = logging.getLogger("runhooks")

_HOUR_SECS = 3600


class Keep(Protocol):
    """A rule for which checkpoints to keep. A ``Saver`` keeps those that any of its rules wants."""

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Return those of ``saved``, in the order of saving and without deleted ones, to keep."""
        ...


@dataclass(frozen=True)
class KeepLast:
    """Keeps the last ``n`` checkpoints."""

    n: int

    def __post_init__(self) -> None:
        arguments.given(n=self.n)
        arguments.whole(n=self.n)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return saved[-self.n :]


@dataclass(frozen=True)
class KeepEvery:
    """Keeps one checkpoint every ``hours`` hours.

    The first one saved that long after the previous one kept, or after the start of the series.
    """

    hours: float

    def __post_init__(self) -> None:
        arguments.given(hours=self.hours)
        arguments.positive(hours=self.hours)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        wanted = []
        last = saved[-1].series_start
        for checkpoint in saved:
            if checkpoint.wall_time >= last + self.hours * _HOUR_SECS:
                last = checkpoint.wall_time
                wanted.append(checkpoint)
        return wanted


@dataclass(frozen=True)
class KeepBest:
    """Keeps the ``n`` checkpoints with the best ``metric``; if values are equal, the first saved.

    A checkpoint whose metric is unknown or NaN is never among the best.

    Args:
        metric: One of the metrics that ``Saver(metrics=...)`` returns.
        n: How many to keep.
        mode: Whether the ``"max"`` or the ``"min"`` is best.

    Raises:
        TypeError: ``metric`` is not a str, or ``n`` not a whole number.
        ValueError: ``n`` is not above zero, or ``mode`` is neither of the two.
    """

    metric: str
    n: int = 1
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        arguments.given(metric=self.metric, n=self.n)
        arguments.instance(str, metric=self.metric)
        arguments.whole(n=self.n)
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        known = [it for it in saved if not math.isnan(it.metrics.get(self.metric, math.nan))]
        # Sorting leaves equals in their order, reversed or not.
        known.sort(key=lambda it: it.metrics[self.metric], reverse=self.mode == "max")
        return known[: self.n]


@dataclass(frozen=True, init=False)
class KeepSteps:
    """Keeps the checkpoints of these global steps: ``KeepSteps(1000, 5000)``.

    Raises:
        TypeError: A step is not a whole number.
        ValueError: A step is negative, or none is given.
    """

    steps: tuple[int, ...]

    def __init__(self, *steps: int) -> None:
        if not steps:
            raise ValueError("KeepSteps needs the steps to keep, one by one: KeepSteps(1000, 5000)")
        for step in steps:
            arguments.given(steps=step)
            arguments.whole(0, steps=step)
        object.__setattr__(self, "steps", steps)

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return [it for it in saved if it.step in self.steps]


class Series:
    """The checkpoints ``<base>-<step>``, those of earlier processes included.

    Args:
        base: Their path without the step.
        keep: The rules for which old ones are kept. None: all are.
        group: The ranks that save them together; its chief deletes old ones.
    """

    def __init__(self, base: AnyPath, keep: Sequence[Keep] | None, group: Group) -> None:
        self._base = base
        self._group = group
        self._keep = keep
        ours = re.compile(re.escape(base.name) + r"-\d+(\.replaced)?")
        #: Those that were not deleted, in the order of saving.
        found = find_checkpoints(base.parent)
        self.saved: Sequence[Checkpoint] = [
            it for it in found if it.complete and ours.fullmatch(it.path.name)
        ]
        # What may be replaced: it was there before, or comes from here.
        self._known = {it.path for it in found}
        self._next_sweep = -math.inf

    def save(
        self, path: AnyPath, content: Content, global_step: int | None, metrics: Mapping[str, float]
    ) -> None:
        """Save ``content`` as ``path``; when it is on the disk, delete those it supersedes.

        Raises as ``write_content``, or as ``write_together`` in a group of several ranks.
        """
        if self._group.is_chief:
            self._sweep()
        record: dict[str, Any] = {
            "global_step": global_step,
            "previous": self.saved[-1] if self.saved else None,
            "metrics": metrics,
            "modes": {it.metric: it.mode for it in self._keep or () if isinstance(it, KeepBest)},
        }
        try:
            if self._group.size == 1 and isinstance(path, Path):
                new = write_content(path, content, **record)
            else:
                known = path in self._known
                new = write_together(self._group, path, content, **record, replaces=known)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                self._known.add(path)  # the answer of a store may have been lost
            add_note(error, f"while saving checkpoint {path}; no other was changed")
            raise
        self._known.add(path)
        self.saved = [*(it for it in self.saved if it.path != path), new]
        if self._keep is not None:
            self._delete_superseded(self._keep)

    def _sweep(self) -> None:
        # A list of all that is in a store costs money.
        if isinstance(self._base, Path) or clock.monotonic() >= self._next_sweep:
            drafts.sweep(self._base.parent)
            self._next_sweep = clock.monotonic() + _HOUR_SECS

    def _delete_superseded(self, keep: Sequence[Keep]) -> None:
        wanted = {it.path for rule in keep for it in rule.wanted(self.saved)}
        wanted.add(self.saved[-1].path)
        unwanted = [it for it in self.saved if it.path not in wanted]
        self.saved = [it for it in self.saved if it.path in wanted]
        if not self._group.is_chief:
            return
        rules = ", ".join(map(repr, keep))
        why = f"none of {rules} keeps it" if rules else "only the newest is kept"
        for checkpoint in unwanted:
            shown = printable(checkpoint.path)
            try:
                drafts.discard(checkpoint.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", shown, error.strerror)
            else:
                metrics = checkpoint.metrics.items()
                known = "".join(f", {printable(name)}={it:g}" for name, it in metrics)
                _log.debug("deleted checkpoint %s%s: %s", shown, known, why)
