"""Which checkpoint of a directory is meant: the newest, that of a step, the best by a metric."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from runhooks import arguments
from runhooks.checkpoint.format import Checkpoint, looks_like_checkpoint
from runhooks.checkpoint.latest import AnyResult, find_checkpoints, newest_sound
from runhooks.checkpoint.places import place_of
from runhooks.checkpoint.reading import printable
from runhooks.checkpoint.retention import KeepBest
from runhooks.checkpoint.tensorflow_files import holds_hook_states, tensorflow_checkpoint_near
from runhooks.errors import NotFoundError
from runhooks.near_names import suggestion
from runhooks.stores.path import AnyPath

Mode = Literal["max", "min"]


class BestCheckpoint(NamedTuple):
    """The best checkpoint of a directory.

    Attributes:
        path: Its path.
        step: Its global step; None if its graph had none.
        metrics: Its metrics by name.
    """

    path: str
    step: int | None
    metrics: Mapping[str, float]


def best_checkpoint(
    checkpoint_dir: str | os.PathLike[str], metric: str, mode: Mode | None = None
) -> BestCheckpoint:
    """Return the checkpoint with the best ``metric``; if several are equal, the first saved.

    Args:
        checkpoint_dir: A directory of checkpoints.
        metric: One of the metrics that ``Saver(metrics=...)`` returned when they were saved.
        mode: Whether the ``"max"`` or the ``"min"`` is best. None: as in the ``KeepBest`` of the
            saver that saved them.

    Raises:
        NotFoundError: There is no checkpoint.
        ValueError: None has that metric, or ``mode`` is needed and not given.
    """
    arguments.given(checkpoint_dir=checkpoint_dir, metric=metric)
    arguments.directory(checkpoint_dir=checkpoint_dir)
    found = _complete(place_of(checkpoint_dir))
    known = {name for it in found for name in it.metrics}
    modes = {name: mode for it in found for name, mode in it.modes.items()}
    mode = mode or modes.get(metric)  # type: ignore[assignment] # a manifest has no other modes
    if mode is None and metric in known:
        raise ValueError(
            f"mode must be 'max' or 'min': the checkpoints in {printable(checkpoint_dir)} do not "
            f"tell which {metric!r} is best"
        )
    best = KeepBest(metric, mode=mode or "max").wanted(found)
    if not best:
        has = f"the metrics {sorted(known)}" if known else "no metrics"
        raise ValueError(
            f"no checkpoint in {printable(checkpoint_dir)} has a number for the metric "
            f"{metric!r}; they have {has}{suggestion(metric, known)}"
        )
    step = None if best[0].step < 0 else best[0].step
    return BestCheckpoint(str(best[0].path), step, best[0].metrics)


@dataclass(frozen=True)
class Choice:
    """Which checkpoint of a directory: of a step, or the best. Neither: the newest sound one.

    Raises:
        TypeError, ValueError: An argument is wrong, or both are given.
    """

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
        """Raise ValueError if there is a choice to make, where ``path`` leaves none."""
        if self != Choice():
            raise ValueError(
                f"step and best choose among the checkpoints of a directory: {printable(path)} is "
                "one checkpoint or file"
            )

    def read(self, path: AnyPath, read: Callable[[AnyPath], AnyResult]) -> AnyResult:
        """Return what ``read`` makes of the checkpoint ``path``, or of the one in that directory.

        Raises:
            NotFoundError: There is none.
            DataLossError: It is damaged. Of the newest, where that is meant, all are.
            ValueError: There is a choice to make, and ``path`` leaves none.
        """
        if looks_like_checkpoint(path) and not holds_hook_states(path):
            self.check_alone(path)
            return read(path)
        if self.best is not None:
            return read(place_of(best_checkpoint(path, self.best, self.mode).path))
        if self.step is not None:
            return read(_of_step(path, self.step))
        found = newest_sound(path, read)
        if found is None:
            raise _none_in(path)
        return found[1]


def _complete(directory: AnyPath) -> Sequence[Checkpoint]:
    found = [it for it in find_checkpoints(directory) if it.complete]
    if not found:
        raise _none_in(directory)
    return found


def _of_step(directory: AnyPath, step: int) -> AnyPath:
    found = _complete(directory)
    of_step = [it.path for it in found if it.step == step]
    if not of_step:
        steps = sorted({it.step for it in found})
        shown = ", ".join(map(str, steps if len(steps) <= 10 else [*steps[:3], "...", *steps[-6:]]))
        raise NotFoundError(
            f"no checkpoint in {printable(directory)} is of step {step}; the steps are {shown}",
            path=str(directory),
        )
    return of_step[-1]


def _none_in(directory: AnyPath) -> NotFoundError:
    where = printable(directory)
    what = "in" if directory.exists() else "or file"
    of_tensorflow = tensorflow_checkpoint_near(directory)
    message = of_tensorflow or f"there is no checkpoint {what} {where}"
    return NotFoundError(message, path=str(directory))
