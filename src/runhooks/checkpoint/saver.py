"""``Saver``: saves the variables of a session and restores them."""

from __future__ import annotations

import atexit
import logging
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays.shards import Share, by_key
from runhooks.checkpoint.files import place_of, printable
from runhooks.checkpoint.format import content_of
from runhooks.checkpoint.group import newest_sound, read_for
from runhooks.checkpoint.retention import (
    Keep,
    KeepBest,
    KeepEvery,
    KeepLast,
    RankedMetric,
    Series,
)
from runhooks.contract import RawSession, Snapshot
from runhooks.errors import add_note, described
from runhooks.near_names import suggestion
from runhooks.ranks import current_group
from runhooks.stores.interruption import interrupting
from runhooks.stores.path import AnyPath, StorePath

_log = logging.getLogger("runhooks")


class BackgroundSave:
    """Calls ``save()``, which saves ``path``, in a thread.

    The interpreter exits after it, except at a second Ctrl-C; a forked child does not wait.
    ``raised``: whether ``wait`` has raised its error.
    """

    def __init__(self, path: str, save: Callable[[], object]) -> None:
        self.path = path
        self.raised = False
        self._save = save
        self._error: BaseException | None = None
        self._pid = os.getpid()
        self._claim = threading.Lock()  # by the thread or ``cancel``
        # Not Thread.join: after a Ctrl-C in it, CPython 3.11 believes that the thread has ended.
        self._ended = threading.Event()

    def start(self) -> None:
        _saves[self.path] = self
        try:
            threading.Thread(target=self._run, name="runhooks-save", daemon=False).start()
        except RuntimeError:
            self._run()

    def cancel(self) -> bool:
        """Give it up unless it runs already; return whether it never will."""
        if not self._claim.acquire(blocking=False):
            return False
        self._forget()
        self._ended.set()
        return True

    @property
    def done(self) -> bool:
        return self._ended.is_set() or os.getpid() != self._pid

    def wait(self) -> None:
        if not self.done:
            with interrupting():
                self._ended.wait()
        if self._error is not None:
            self.raised = True
            self._forget()
            raise self._error

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._save()
        except BaseException as error:  # noqa: BLE001 - ``wait`` raises it
            self._error = error
            path = printable(self.path)
            _log.error("the checkpoint %s could not be saved: %s", path, described(error))
        else:
            self._forget()
        finally:
            del self._save  # frees what it has written
            self._ended.set()

    def _forget(self) -> None:
        if _saves.get(self.path) is self:
            del _saves[self.path]


_saves: dict[str, BackgroundSave] = {}


def save_under_way(path: str) -> BackgroundSave | None:
    """Return the background save of ``path``, if any, unless it succeeded or has raised."""
    return _saves.get(path)


@atexit.register
def _finish() -> None:
    """Wait where a Ctrl-C has ended the interpreter's own waiting."""
    for save in list(_saves.values()):
        with suppress(Exception):
            save.wait()


_MAX_TO_KEEP = 5
_EVERY_N_HOURS = 10_000.0


class Saver:
    """Saves checkpoints as ``tf.compat.v1.train.Saver`` does, and deletes old ones.

    Use a saver from one thread only.

    Args:
        var_list: The variables to save and restore, or their names. None: all of the session.
        max_to_keep: How many of the newest to keep, including those that earlier processes saved
            under the same name. None or 0: all.
        keep_checkpoint_every_n_hours: Also keep one older checkpoint every this many hours.
        keep: Rules such as ``KeepLast(3)`` instead of the two numbers. A checkpoint is kept if any
            rule wants it, and the newest always is.
        asynchronous: Whether a thread writes the values; ``save`` copies those that later runs
            change, to memory that the next save reuses. The next ``save``, ``restore`` or ``wait``
            waits for it and raises its error.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, ``keep`` is given with one that it replaces, or
            has ``KeepBest`` rules of two metrics of one name.
    """

    def __init__(
        self,
        var_list: Iterable[Any] | None = None,
        *,
        max_to_keep: int | None = _MAX_TO_KEEP,
        keep_checkpoint_every_n_hours: float = _EVERY_N_HOURS,
        keep: Iterable[Keep] | None = None,
        asynchronous: bool = False,
    ) -> None:
        if isinstance(var_list, Mapping | str):
            raise TypeError(f"var_list must be a list of variables or names, got {var_list!r}")
        self._only: list[str] | None = None
        if var_list is not None:
            self._only = [it if isinstance(it, str) else str(it.op.name) for it in var_list]
        self._keep = _rules(max_to_keep, keep_checkpoint_every_n_hours, keep)
        self._asynchronous = asynchronous
        # By save_path, for one session: before the next, checkpoints may come and go.
        self._series: dict[AnyPath, tuple[weakref.ref[RawSession], Series]] = {}
        self._under_way: BackgroundSave | None = None
        self._reusable: Mapping[str, NDArray[Any]] = {}

    @property
    def best_rules(self) -> list[KeepBest]:
        return [rule for rule in self._keep or () if isinstance(rule, KeepBest)]

    @property
    def is_partial(self) -> bool:
        return self._only is not None

    @property
    def last_checkpoints(self) -> list[str]:
        """The paths of the checkpoints that still exist, oldest first for each ``save_path``.

        Those of earlier processes are included after the first ``save``; one being saved is not.
        """
        return [str(it.path) for _, series in self._series.values() for it in series.saved]

    def save(
        self,
        sess: RawSession,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
    ) -> str:
        """Save the session as ``<save_path>-<global_step>``, and return that path.

        When it returns (or ``wait`` does, if ``asynchronous``), the checkpoint is on disk, and
        superseded ones are deleted. A directory that was created may reach the disk later.

        Args:
            sess: The session.
            save_path: The path without the step.
            global_step: A number or a tensor. None: the path is ``save_path``.

        Raises:
            OSError: It cannot be written. All earlier ones are still there.
            TypeError: A value cannot be saved.
            ValueError: A name cannot be saved, or ``var_list`` has an unknown name.
        """
        self.wait()
        self._check_names(sess)
        base = place_of(save_path)
        path, step = base, sess.global_step
        if global_step is not None:
            step = _value(sess, global_step)
            path = base.with_name(f"{base.name}-{step}")
        snapshot = self._snapshot(sess)
        content, metrics = content_of(snapshot), self._metrics_of(step)
        if base not in self._series or self._series[base][0]() is not sess:
            self._series[base] = weakref.ref(sess), Series(base, self._keep, current_group())
        write = partial(self._series[base][1].save, path, content, step, metrics)
        self._write(sess, str(path), metrics, write)
        return str(path)

    def restore(self, sess: RawSession, save_path: str | os.PathLike[str]) -> None:
        """Load the checkpoint ``save_path`` into the session, completely or not at all.

        Raises:
            NotFoundError: There is no such checkpoint.
            DataLossError: It is damaged.
            ValueError: It belongs to another model, or ``var_list`` has an unknown name.
        """
        self.wait()
        self._check_names(sess)
        place = place_of(save_path)
        path = str(place) if isinstance(place, StorePath) else str(save_path)
        snapshot = read_for(current_group(), place, in_parts=self._only is not None)
        try:
            sess.load(snapshot, only=self._only)
        except ValueError as error:
            add_note(
                error,
                f"while restoring checkpoint {path}: give another checkpoint_dir to start over, "
                f"with Scaffold(init_from=InitFrom({path!r}, only=[...])) to begin with weights "
                "of it",
            )
            raise
        sess.checkpoint, sess.checkpoint_metrics = path, snapshot.metrics

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk; if saving failed, raise its error once."""
        save = self._under_way
        if save is not None and not (save.done and save.raised):
            try:
                save.wait()
            finally:
                # A Ctrl-C may have ended the wait.
                self._under_way = None if save.done else save

    def _check_names(self, sess: RawSession) -> None:
        for name in self._only or ():
            if name not in (known := sess.saved_names()):
                raise ValueError(
                    f"var_list has {name!r}, which is not a variable of the session"
                    f"{suggestion(name, known)}"
                )

    def _write(
        self,
        sess: RawSession,
        path: str,
        metrics: Mapping[str, float],
        write: Callable[[], object],
    ) -> None:
        def fail() -> None:
            if sess.checkpoint == path:
                sess.checkpoint = None

        def save() -> None:
            try:
                write()
            except BaseException:
                fail()
                raise

        background = BackgroundSave(path, save) if self._asynchronous else None
        try:
            if self._only is None:
                sess.checkpoint, sess.checkpoint_metrics = path, metrics
            if background is None:
                save()
            else:
                self._under_way = background
                background.start()
        except BaseException:  # a Ctrl-C may come before anything is written
            if background is None or background.cancel():
                fail()
            raise

    def _snapshot(self, sess: RawSession) -> Snapshot:
        group = current_group()
        options: dict[str, Any] = {} if not self._asynchronous else {"into": self._reusable}
        if group.size > 1:
            options["share"] = Share(group.rank, group.size)
        snapshot = sess.snapshot(**options)
        if self._only is not None:
            snapshot = snapshot.only(self._only)
        if self._asynchronous:
            # Only copies are writeable.
            arrays = by_key(snapshot.arrays)
            self._reusable = {key: it for key, it in arrays.items() if it.flags.writeable}
        return snapshot

    def _metrics_of(self, step: int | None) -> dict[str, float]:
        if step is None:
            return {}
        values = {rule.name: rule.metric.by_step() for rule in self.best_rules}
        return {name: float(it[step]) for name, it in values.items() if step in it}


def restore_latest(
    saver: Saver, sess: RawSession, checkpoint_dir: str | os.PathLike[str]
) -> str | None:
    """Restore the checkpoint that ``newest_sound`` finds; return its path, if any.

    Raises DataLossError if all are damaged, ValueError if that one belongs to another model.
    """
    saver.wait()  # what it is saving will be the latest
    found = newest_sound(current_group(), checkpoint_dir, partial(saver.restore, sess))
    return None if found is None else str(found[0])


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
    known: dict[str, RankedMetric] = {}
    for rule in (it for it in rules if isinstance(it, KeepBest)):
        first = known.setdefault(rule.name, rule.metric)
        if first != rule.metric:
            raise ValueError(
                f"keep has KeepBest rules of two metrics called {rule.name!r}, {first!r} and "
                f"{rule.metric!r}: give them different names"
            )
    return rules


def _value(sess: RawSession, global_step: Any) -> int:
    try:
        step = operator.index(global_step)
    except TypeError:  # a tensor, or the name of one
        step = int(sess.run(global_step))
    if not -(1 << 63) <= step < 1 << 63:
        raise ValueError(f"global_step must be an integer of 64 bits, got {step}")
    return step
