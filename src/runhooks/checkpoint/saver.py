"""``Saver``: saves the variables of a session and brings them back."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from runhooks import arguments
from runhooks.checkpoint.background_save import BackgroundSave
from runhooks.checkpoint.format import Content, content_of, read_checkpoint
from runhooks.checkpoint.retention import Keep, KeepBest, KeepEvery, KeepLast
from runhooks.checkpoint.series import Series
from runhooks.checkpoint.snapshot import SavableSession
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")

#: The metrics of a step, by name.
Metrics = Callable[[int | None], Mapping[str, float]]

_MAX_TO_KEEP, _EVERY_N_HOURS = 5, 10000.0


class Saver:
    """Saves checkpoints as ``tf.compat.v1.train.Saver`` does, and deletes old ones.

    ``var_list``: the variables to save and restore, or their names; None: all of the session.
    ``max_to_keep``: how many of the newest checkpoints to keep; None or 0: all. Of older ones
    one is kept every ``keep_checkpoint_every_n_hours`` hours. Those that an earlier process saved
    under the same name count as well.

    Ours: ``keep``, in place of these two: rules such as ``KeepLast(3)``, ``KeepBest("accuracy")``;
    a checkpoint that any of them wants is kept, and so is the newest. ``metrics(step)``: what is
    known of the step that is being saved, for ``KeepBest``; it is stored in the checkpoint.
    ``asynchronous``: ``save`` returns as soon as it has the values; a thread brings them to the
    disk. The next ``save``, ``restore`` or ``wait`` waits for it, and raises what it failed of.
    Where values had to be copied (jax on a CPU), that memory is kept for the next time.

    A saver is for one thread. Raises TypeError or ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        var_list: Iterable[Any] | None = None,
        *,
        max_to_keep: int | None = _MAX_TO_KEEP,
        keep_checkpoint_every_n_hours: float = _EVERY_N_HOURS,
        keep: Iterable[Keep] | None = None,
        metrics: Metrics | None = None,
        asynchronous: bool = False,
    ) -> None:
        if isinstance(var_list, Mapping | str):
            raise TypeError(f"var_list must be a list of variables or names, got {var_list!r}")
        self._only = None if var_list is None else [_name(variable) for variable in var_list]
        self._keep = _rules(max_to_keep, keep_checkpoint_every_n_hours, keep)
        if metrics is None and any(isinstance(rule, KeepBest) for rule in self._keep or ()):
            raise ValueError("KeepBest in keep needs metrics, a function from the step to a dict")
        arguments.function(metrics=metrics)
        self._metrics = metrics
        self._unknown_told = False
        self._asynchronous = asynchronous
        self._series: dict[Path, Series] = {}  # by save_path
        self._under_way: BackgroundSave | None = None
        self._places: Mapping[str, NDArray[Any]] = {}

    @property
    def last_checkpoints(self) -> list[str]:
        """The paths of the checkpoints that were not deleted, oldest first for each ``save_path``.

        Those of earlier processes are known from the first ``save`` on; one that is still being
        saved is not among them.
        """
        return [str(it.path) for series in self._series.values() for it in series.saved]

    def save(
        self,
        sess: SavableSession,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
    ) -> str:
        """Save the session as ``<save_path>-<global_step>`` and return that path.

        ``global_step``: a number or a tensor; None: the path is ``save_path`` itself. When it
        returns (``wait`` does, if ``asynchronous``), the checkpoint is on the disk, and those that
        it makes superfluous are deleted; of a directory that it had to make, the file system says
        when that is on the disk.

        Raises OSError if it cannot be written, TypeError or ValueError for a value that cannot be
        saved; all checkpoints of before are still there then.
        """
        self.wait()
        base = Path(save_path)
        path, step = base, sess.global_step
        if global_step is not None:
            step = _value(sess, global_step)
            path = base.with_name(f"{base.name}-{step}")
        content, metrics = self._content_of(sess), self._metrics_of(step)
        if base not in self._series:
            self._series[base] = Series(base, self._keep)
        series = self._series[base]
        if self._only is None:
            sess.checkpoint = str(path)

        def write() -> None:
            try:
                series.save(path, content, step, metrics)
            except BaseException:
                if sess.checkpoint == str(path):
                    sess.checkpoint = None
                raise

        if self._asynchronous:
            self._under_way = BackgroundSave(str(path), write)
        else:
            write()
        return str(path)

    def restore(self, sess: SavableSession, save_path: str | os.PathLike[str]) -> None:
        """Bring the checkpoint ``save_path`` into the session, whole or not at all.

        Raises NotFoundError if it is not there, DataLossError if it is damaged, ValueError if it
        is of another model.
        """
        self.wait()
        snapshot = read_checkpoint(Path(save_path))
        try:
            sess.load(snapshot, only=self._only)
        except ValueError as error:
            error.add_note(
                f"while restoring checkpoint {save_path}: give another directory to begin anew, or "
                "Saver(var_list=[...]) to restore those variables alone"
            )
            raise
        sess.checkpoint = str(save_path) if self._only is None else None

    def wait(self) -> None:
        """Return when what was saved is on the disk. Raises, once, what saving it failed of."""
        save = self._under_way
        if save is not None and not (save.done and save.told):
            try:
                save.wait()
            finally:
                # A Ctrl-C may end the waiting before the saving ends.
                self._under_way = None if save.done else save

    def _content_of(self, sess: SavableSession) -> Content:
        snapshot = sess.snapshot(into=self._places) if self._asynchronous else sess.snapshot()
        if self._only is not None:
            snapshot = snapshot.only(self._only)
        if self._asynchronous:
            # What can be written to was copied, and is where to copy to next; the rest is shared.
            self._places = {key: it for key, it in snapshot.arrays.items() if it.flags.writeable}
        return content_of(snapshot)

    def _metrics_of(self, step: int | None) -> dict[str, float]:
        if self._metrics is None:
            return {}
        found = self._metrics(step)
        try:
            known = {str(name): float(value) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError):
            raise TypeError(
                f"metrics of a Saver must return a dict of numbers by name, got {found!r}"
            ) from None
        self._check_known(known)
        return known

    def _check_known(self, metrics: Mapping[str, float]) -> None:
        """Warn, once, if a rule goes by a metric that is not among those there are."""
        wanted = [rule.metric for rule in self._keep or () if isinstance(rule, KeepBest)]
        for name in wanted:
            if metrics and name not in metrics and not self._unknown_told:
                self._unknown_told = True
                near = suggestion(name, metrics)
                _log.warning(
                    "KeepBest(%r) keeps nothing: the metrics are %s%s", name, sorted(metrics), near
                )


def _rules(
    max_to_keep: int | None, hours: float, keep: Iterable[Keep] | None
) -> Sequence[Keep] | None:
    if keep is None:
        arguments.whole(0, max_to_keep=max_to_keep)
        arguments.positive(keep_checkpoint_every_n_hours=hours)
        return [KeepLast(max_to_keep), KeepEvery(hours)] if max_to_keep else None
    if (max_to_keep, hours) != (_MAX_TO_KEEP, _EVERY_N_HOURS):
        raise ValueError(
            "keep cannot be given together with max_to_keep or keep_checkpoint_every_n_hours: "
            "put KeepLast and KeepEvery into it"
        )
    rules = list(keep) if isinstance(keep, Iterable) else [None]
    if not all(callable(getattr(rule, "wanted", None)) for rule in rules):
        raise TypeError(f"keep must be a list of rules such as KeepLast(5), got {keep!r}")
    return rules


def _name(variable: Any) -> str:
    return variable if isinstance(variable, str) else str(variable.op.name)


def _value(sess: SavableSession, global_step: Any) -> int:
    try:
        return operator.index(global_step)
    except TypeError:  # a tensor, or the name of one
        return int(sess.run(global_step))
