"""``MonitoredTrainingSession``, and a loop around it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from runhooks import arguments
from runhooks.checkpoint import DirectoryLock, Saver
from runhooks.contract import RawSession, SessionRunHook
from runhooks.graph import get_default_graph
from runhooks.graph.base import Place, SessionOpener
from runhooks.hooks import (
    CheckpointSaverHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from runhooks.ranks import current_group
from runhooks.session.hook_list import in_order
from runhooks.session.monitored import MonitoredSession
from runhooks.session.recoverable import RecoveryPolicy
from runhooks.session.scaffold import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
    opener_of,
)

#: Steps or seconds.
Cadence = tuple[int | None, float | None]

#: The default where None means "not at all".
USE_DEFAULT: Any = object()


def MonitoredTrainingSession(  # noqa: D417, N802 - TensorFlow's name and arguments
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    scaffold: Scaffold | None = None,
    hooks: Iterable[SessionRunHook] | None = None,
    chief_only_hooks: Iterable[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | os.PathLike[str] | None = None,
    save_graph_def: bool = True,
    *,
    recovery: RecoveryPolicy | None = None,
    saver: Any = None,
) -> MonitoredSession:
    """Return a ``MonitoredSession`` that saves checkpoints and summaries, and resumes.

    As that of ``tf.compat.v1.train``; None or 0 turns a cadence off. Order of hooks:
    ``chief_only_hooks``, those created here, ``hooks``, the checkpoint hook.

    Args:
        master: Like ``config``, only for TensorFlow sessions.
        is_chief: Whether this is the chief, which saves; a worker waits up to ``max_wait_secs`` for
            its checkpoint. If several PyTorch or JAX ranks pass True, rank 0 is the chief.
        checkpoint_dir: Where to resume from, and to save at the start, at the end, and every so
            often (default: 600 seconds).
        summary_dir: Where to write summaries (default: every 100 steps) and, every
            ``log_step_count_steps``, steps per second; None: ``checkpoint_dir``.
        save_graph_def: Whether to write ``graph.pbtxt`` and meta graphs of a TensorFlow graph.
        saver: As that of a ``Scaffold``; ``recovery``: as for ``MonitoredSession``.

    Raises:
        ValueError: For a wrong ``master`` or ``config``, a cadence that is negative or in both
            steps and seconds, the directory "", two savers, or ``KeepBest`` where nothing saves.
    """
    arguments.directory(checkpoint_dir=checkpoint_dir, summary_dir=summary_dir)
    opener, scaffold = opener_of(get_default_graph()), _with_saver(scaffold, saver)
    creator: SessionCreator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    if not is_chief:
        creator = WorkerSessionCreator(scaffold, master, config, max_wait_secs, checkpoint_dir)
    all_hooks = in_order(hooks)  # each rank has all
    if is_chief or (opener.joins_ranks and current_group().size > 1):
        summaries = scaffold, log_step_count_steps, save_summaries_steps, save_summaries_secs
        checkpoints = scaffold, save_graph_def, save_checkpoint_steps, save_checkpoint_secs
        all_hooks = [
            *_for_chief(in_order(chief_only_hooks)),
            *_summary_hooks(summary_dir or checkpoint_dir, *summaries),
            *_checkpoint_hooks(checkpoint_dir, *checkpoints),
            *all_hooks,
        ]
        _check_best(scaffold.saver, checkpoint_dir, all_hooks)
        if checkpoint_dir:  # before a file is written
            all_hooks.insert(0, DirectoryLockHook(opener, checkpoint_dir, all_hooks))
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs, recovery=recovery)


def train(  # noqa: D417 - the others are those of MonitoredTrainingSession
    train_op: Any,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    hooks: Iterable[SessionRunHook] | None = None,
    *,
    saver: Any = None,
    max_steps: int | None = None,
    scaffold: Scaffold | None = None,
    chief_only_hooks: Iterable[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    log_step_count_steps: int | None = 100,
    summary_dir: str | os.PathLike[str] | None = None,
    recovery: RecoveryPolicy | None = None,
) -> int | None:
    """Run ``train_op`` of the default graph in a ``MonitoredTrainingSession`` until the end.

    As ``tf.contrib.training.train``. It ends with the data, at ``max_steps``, when a hook asks for
    it, or after Ctrl-C and SIGTERM; called again with the same ``checkpoint_dir``, it resumes.

    Args:
        train_op: Whatever ``session.run`` takes, fed by hooks alone.
        checkpoint_dir: As for ``MonitoredTrainingSession``, like all others.
        max_steps: The global step to stop at.

    Returns:
        The last global step; None if the graph has none.

    Raises:
        TypeError, ValueError: As ``MonitoredTrainingSession`` and ``StopAtStepHook``.
    """
    arguments.given(train_op=train_op)
    arguments.steps(max_steps=max_steps)
    stops = [] if max_steps is None else [StopAtStepHook(last_step=int(max_steps))]
    with MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir,
        scaffold=scaffold,
        hooks=[*(hooks or ()), *stops],
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        save_summaries_secs=save_summaries_secs,
        log_step_count_steps=log_step_count_steps,
        save_checkpoint_steps=save_checkpoint_steps,
        summary_dir=summary_dir,
        recovery=recovery,
        saver=saver,
    ) as session:
        while not session.should_stop():
            session.run(train_op)
    return session.global_step


def _with_saver(scaffold: Any, saver: Any) -> Any:
    if saver is None:
        return scaffold or Scaffold()
    made = Scaffold(saver=saver, copy_from_scaffold=scaffold)
    if scaffold is None:
        return made
    if scaffold.saver not in (None, saver):
        raise ValueError(
            f"saver must be left out for a scaffold that has one, got saver={saver!r} and a "
            f"scaffold with {scaffold.saver!r}"
        )
    if not isinstance(scaffold, Scaffold):
        return made
    scaffold.saver = saver  # not a copy: hooks may hold this one
    return scaffold


def _check_best(saver: Any, checkpoint_dir: Place, hooks: Iterable[SessionRunHook]) -> None:
    best = saver.best_rules if isinstance(saver, Saver) else []
    if best and not checkpoint_dir and not any(isinstance(it, CheckpointSaverHook) for it in hooks):
        raise ValueError(
            f"the saver has {best[0]!r}, but nothing saves checkpoints: give checkpoint_dir, or "
            "leave the saver out"
        )


def _for_chief(hooks: list[SessionRunHook]) -> list[SessionRunHook]:
    if current_group().size > 1:
        for hook in hooks:
            hook.runs_on = "chief"
    return hooks


class DirectoryLockHook(SessionRunHook):
    """Refuses a second session that would save in the same directory."""

    first: ClassVar[bool] = True
    is_of_the_session: ClassVar[bool] = True
    runs_on = "chief"

    def __init__(
        self,
        opener: SessionOpener,
        directory: str | os.PathLike[str],
        others: Iterable[SessionRunHook],
    ) -> None:
        self._lock = DirectoryLock(
            opener.resolve(directory),
            claims=opener.writes_checkpoints,
            sole=any(isinstance(it, CheckpointSaverHook) for it in others),
        )

    def begin(self) -> None:
        self._lock.acquire()

    def end(self, session: RawSession) -> None:
        self._lock.release()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._lock.release()


def _summary_hooks(
    folder: Place,
    scaffold: Scaffold,
    count_steps: int | None,
    steps: int | None,
    secs: float | None,
) -> Iterator[SessionRunHook]:
    if not folder:
        return
    cadence = _cadence("save_summaries", steps, secs, (100, None))
    arguments.steps(0, log_step_count_steps=count_steps)
    if count_steps:
        yield StepCounterHook(count_steps, output_dir=folder)
    if cadence != (None, None):
        yield SummarySaverHook(*cadence, output_dir=folder, scaffold=scaffold)


def _checkpoint_hooks(
    folder: Place,
    scaffold: Scaffold,
    save_graph_def: bool,
    steps: int | None,
    secs: float | None,
) -> Iterator[SessionRunHook]:
    if not folder:
        return
    steps, secs = _cadence("save_checkpoint", steps, secs, (None, 600))
    if (steps, secs) != (None, None):
        yield CheckpointSaverHook(
            folder, secs, steps, scaffold=scaffold, save_graph_def=save_graph_def
        )


def _cadence(what: str, steps: Any, secs: Any, default: Cadence) -> Cadence:
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    steps, secs = (None if it is USE_DEFAULT else it for it in (steps, secs))
    arguments.steps(0, **{f"{what}_steps": steps})
    arguments.not_negative(**{f"{what}_secs": secs})
    steps, secs = steps or None, secs or None  # as in TensorFlow
    if steps is not None and secs is not None:
        raise ValueError(
            f"{what}_steps and {what}_secs cannot both be given, got {steps!r} and {secs!r}"
        )
    return steps, secs
