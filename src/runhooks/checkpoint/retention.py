"""Which checkpoints to keep, and which one is meant."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from runhooks import arguments, clock
from runhooks.checkpoint import attempts
from runhooks.checkpoint.files import place_of, printable
from runhooks.checkpoint.format import (
    Checkpoint,
    Content,
    begun_manifest,
    find_checkpoints,
    holds_hook_states,
    looks_like_checkpoint,
    tensorflow_checkpoint_near,
)
from runhooks.checkpoint.group import AnyResult, newest_sound, write_together
from runhooks.errors import NotFoundError, add_note
from runhooks.near_names import suggestion
from runhooks.ranks import AloneGroup, Group
from runhooks.stores.path import AnyPath
from runhooks.trigger import Due

_log = logging.getLogger("runhooks")

_HOUR_SECS = 3600

Mode = Literal["max", "min"]


class Keep(Protocol):
    """A rule for which checkpoints to keep."""

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Return those of ``saved``, in the order of saving and without deleted ones, to keep."""


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
    After a save by a clock that was ahead, it keeps none until the clock has caught up.
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


class RankedMetric(Protocol):
    """A metric that ranks checkpoints, such as ``evaluation.metric("accuracy")``."""

    @property
    def name(self) -> str:
        """Its name in the checkpoints."""

    def by_step(self) -> Mapping[int, float]:
        """Return its values so far by global step."""

    def next_due(self) -> Due | None:
        """Return when its next value is due, as for ``SessionRunHook.next_due``."""


@dataclass(frozen=True)
class KeepBest:
    """Keeps the ``n`` checkpoints with the best ``metric``; of equal ones, the first saved.

    One whose metric is unknown or NaN is never among the best.

    Args:
        metric: A metric of an ``EvaluationHook`` in the same session, or another object with its
            ``name``, ``by_step`` and ``next_due``.
        n: How many to keep.
        mode: Whether the ``"max"`` or the ``"min"`` is best.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    metric: RankedMetric
    n: int = 1
    mode: Mode = "max"

    def __post_init__(self) -> None:
        arguments.given(metric=self.metric, n=self.n)
        if not callable(getattr(self.metric, "by_step", None)):
            raise TypeError(
                "metric must be a metric of an evaluation, such as "
                f'evaluation.metric("accuracy"), got {self.metric!r}'
            )
        arguments.whole(n=self.n)
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")

    @property
    def name(self) -> str:
        """The name of its metric."""
        return self.metric.name

    def is_among_best(self, step: int) -> bool:
        """Return whether the value at ``step`` is among the ``n`` best so far."""
        values = self.metric.by_step()
        own = values.get(step, math.nan)
        if math.isnan(own):
            return False
        sign = 1 if self.mode == "max" else -1
        before = sum(
            sign * it > sign * own or (it == own and at < step) for at, it in values.items()
        )
        return before < self.n

    def wanted(self, saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return best_of(saved, self.name, self.mode)[: self.n]


def best_of(saved: Iterable[Checkpoint], metric: str, mode: Mode) -> list[Checkpoint]:
    """Return those with a number for ``metric``, the best first."""
    known = (it for it in saved if not math.isnan(it.metrics.get(metric, math.nan)))
    # Equals stay in their order, reversed or not.
    return sorted(known, key=lambda it: it.metrics[metric], reverse=mode == "max")


@dataclass(frozen=True, init=False)
class KeepSteps:
    """Keeps the checkpoints of these global steps: ``KeepSteps(1000, 5000)``.

    Raises TypeError or ValueError if one is not a whole number from 0 on, or none is given.
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
    """The checkpoints ``<base>-<step>``, also of earlier processes. ``keep``: None keeps all."""

    def __init__(self, base: AnyPath, keep: Sequence[Keep] | None, group: Group) -> None:
        self._base = base
        self._group = group
        self._keep = keep
        ours = re.compile(re.escape(base.name) + r"-\d+")
        found = find_checkpoints(base.parent)
        self.saved: Sequence[Checkpoint] = [
            it for it in found if it.complete and ours.fullmatch(it.path.name)
        ]
        self._known = {it.path for it in found}  # may be replaced
        self._next_sweep = -math.inf

    def save(
        self, path: AnyPath, content: Content, global_step: int | None, metrics: Mapping[str, float]
    ) -> None:
        # A list of all that is in a store costs money.
        if self._group.is_chief and clock.monotonic() >= self._next_sweep:
            attempts.sweep(self._base.parent)
            self._next_sweep = clock.monotonic() + _HOUR_SECS
        previous = self.saved[-1] if self.saved else None
        modes = {it.name: it.mode for it in self._keep or () if isinstance(it, KeepBest)}
        manifest = begun_manifest(global_step, previous, metrics, modes)
        replaces = path in self._known
        try:
            new = write_together(self._group, path, content, manifest, replaces)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                self._known.add(path)  # a store's answer may be lost
            add_note(error, f"while saving checkpoint {path}; no other was changed")
            raise
        self._known.add(path)
        before = [it for it in self.saved if it.path != path] if replaces else self.saved
        self.saved = [*before, new]
        if self._keep is not None:
            self._delete_superseded(self._keep)

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
                attempts.discard(checkpoint.path)
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", shown, error.strerror)
            else:
                metrics = checkpoint.metrics.items()
                known = "".join(f", {printable(name)}={it:g}" for name, it in metrics)
                _log.debug("deleted checkpoint %s%s: %s", shown, known, why)


class BestCheckpoint(NamedTuple):
    """The best checkpoint of a directory.

    Attributes:
        path: Its path.
        step: Its global step; None if its graph had none.
        metrics: By name.
    """

    path: str
    step: int | None
    metrics: Mapping[str, float]


def best_checkpoint(
    checkpoint_dir: str | os.PathLike[str], metric: str, mode: Mode | None = None
) -> BestCheckpoint:
    """Return the checkpoint with the best ``metric``; of equal ones, the first saved.

    Args:
        checkpoint_dir: A directory of checkpoints.
        metric: The name of the metric of a ``KeepBest`` of the saver that saved them.
        mode: Whether the ``"max"`` or the ``"min"`` is best. None: as in that ``KeepBest``.

    Raises:
        NotFoundError: There is no checkpoint.
        ValueError: None has that metric.
    """
    arguments.given(checkpoint_dir=checkpoint_dir, metric=metric)
    arguments.directory(checkpoint_dir=checkpoint_dir)
    directory = place_of(checkpoint_dir)
    found = _complete(directory)
    known = {name for it in found for name in it.metrics}
    modes = {name: mode for it in found for name, mode in it.modes.items()}
    mode = mode or modes.get(metric)  # type: ignore[assignment] # a manifest has no other modes
    best = best_of(found, metric, mode or "max")
    if not best:
        has = f"the metrics {sorted(known)}" if known else "no metrics"
        raise ValueError(
            f"no checkpoint in {printable(directory)} has a number for the metric "
            f"{metric!r}; they have {has}{suggestion(metric, known)}"
        )
    step = None if best[0].step < 0 else best[0].step
    return BestCheckpoint(str(best[0].path), step, best[0].metrics)


@dataclass(frozen=True)
class Choice:
    """Which checkpoint of a directory: of a step, or the best; else the newest sound one."""

    step: int | None = None
    best: str | None = None
    mode: Mode | None = None

    def __post_init__(self) -> None:
        arguments.whole(0, step=self.step)
        arguments.instance(str, best=self.best)
        if self.step is not None and self.best is not None:
            raise ValueError(
                f"step and best cannot both be given, got {self.step!r} and {self.best!r}"
            )
        if self.mode not in (None, "max", "min") or (self.mode and self.best is None):
            raise ValueError(
                f"mode must be 'max' or 'min', and given with best alone, got {self.mode!r}"
            )

    def check_alone(self, path: AnyPath) -> None:
        """Raise ValueError if a choice was asked for: ``path`` leaves none."""
        if self != Choice():
            raise ValueError(
                f"step and best choose among the checkpoints of a directory: {printable(path)} is "
                "one checkpoint or file"
            )

    def read(self, path: AnyPath, read: Callable[[AnyPath], AnyResult]) -> AnyResult:
        """Return what ``read`` makes of the checkpoint ``path``, or of the one in that directory.

        If a running training deletes it before it is read, another is chosen.
        """
        if looks_like_checkpoint(path) and not holds_hook_states(path):
            self.check_alone(path)
            return read(path)
        if self.best is None and self.step is None:
            found = newest_sound(AloneGroup(), path, read)
            if found is None:
                raise _none_in(path)
            return found[1]
        gone: set[AnyPath] = set()
        while True:
            chosen = self._chosen(path)
            try:
                return read(chosen)
            except NotFoundError:
                if chosen in gone:
                    raise
                gone.add(chosen)

    def _chosen(self, directory: AnyPath) -> AnyPath:
        if self.best is not None:
            return place_of(best_checkpoint(directory, self.best, self.mode).path)
        found = _complete(directory)
        if of_step := [it.path for it in found if it.step == self.step]:
            return of_step[-1]
        steps = sorted({it.step for it in found})
        shown = ", ".join(map(str, steps if len(steps) <= 10 else [*steps[:3], "...", *steps[-6:]]))
        raise NotFoundError(
            f"no checkpoint in {printable(directory)} is of step {self.step}; the steps are "
            f"{shown}",
            path=str(directory),
        )


def _complete(directory: AnyPath) -> Sequence[Checkpoint]:
    found = [it for it in find_checkpoints(directory) if it.complete]
    if not found:
        raise _none_in(directory)
    return found


def _none_in(directory: AnyPath) -> NotFoundError:
    where = printable(directory)
    what = "in" if directory.exists() else "or file"
    of_tensorflow = tensorflow_checkpoint_near(directory)
    message = of_tensorflow or f"there is no checkpoint {what} {where}"
    return NotFoundError(message, path=str(directory))
