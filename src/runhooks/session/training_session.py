"""``MonitoredTrainingSession``: a monitored session with the hooks that training usually has."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunHook
from runhooks.engines.role import Role
from runhooks.graph import get_default_graph
from runhooks.hooks import (
    CheckpointSaverHook,
    RecoveryCounterHook,
    StepCounterHook,
    SummarySaverHook,
)
from runhooks.session.creators import creator_for
from runhooks.session.hook_names import in_order
from runhooks.session.launcher import launcher_of
from runhooks.session.monitored import MonitoredSession
from runhooks.session.recoverable import RecoveryPolicy
from runhooks.session.scaffold import Scaffold

_log = logging.getLogger("runhooks")

#: How often workers save that have to do so in the same steps.
_STEPS_TOGETHER = 1000

#: Steps or seconds from one time to the next; None and None: never.
Cadence = tuple[int | None, float | None]

#: Stands for the default of an argument for which None means "not at all".
USE_DEFAULT: Any = object()


def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
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
) -> MonitoredSession:
    """A ``MonitoredSession`` that counts steps, saves summaries and checkpoints, and resumes.

    As ``tf.compat.v1.train.MonitoredTrainingSession``. With a ``checkpoint_dir`` it goes on from
    the newest sound checkpoint there, and a chief saves one there every ``save_checkpoint_secs``
    seconds or ``save_checkpoint_steps`` steps (600 seconds if neither is given), and at the end. In
    ``summary_dir`` (``checkpoint_dir`` if None) a chief writes summaries every
    ``save_summaries_steps`` steps or ``save_summaries_secs`` seconds (100 steps if neither is
    given), steps per second every ``log_step_count_steps`` steps, and how often it was recovered.
    A cadence of None or 0 means not at all, and not at the end.

    A worker (``is_chief=False``) does none of that, has no ``chief_only_hooks``, and waits up to
    ``max_wait_secs`` for the chief's first checkpoint. ``chief_only_hooks`` come first, then those
    made here, then ``hooks``; saving comes last. ``save_graph_def``: write the graph as well.
    ``recovery``: ours, as for ``MonitoredSession``. Under TensorFlow's distribute coordinator its
    worker context says what this process is, and not ``master`` and ``is_chief``.

    Raises ValueError for ``master`` and ``config``, which are for TensorFlow's own sessions, for a
    cadence below zero or both in steps and in seconds, and for a directory "".
    """
    launcher = launcher_of(get_default_graph())
    launcher.check_target(master, config)
    arguments.directory(checkpoint_dir=checkpoint_dir, summary_dir=summary_dir)
    role = launcher.role(master, is_chief, config)
    scaffold = scaffold or Scaffold()
    creator = creator_for(role, scaffold, checkpoint_dir, max_wait_secs)
    all_hooks = in_order(chief_only_hooks) if role.has_chief_hooks else []
    counters: list[SessionRunHook] = []
    if folder := _inside(summary_dir or checkpoint_dir, role.summaries):
        cadence = _cadence("save_summaries", save_summaries_steps, save_summaries_secs, (100, None))
        if writing := list(_summary_hooks(folder, scaffold, log_step_count_steps, cadence)):
            all_hooks += writing
            counters = [RecoveryCounterHook(output_dir=folder)]
    if folder := _inside(checkpoint_dir, role.checkpoints):
        given = (save_checkpoint_steps, save_checkpoint_secs)
        cadence = _in_step(role, _cadence("save_checkpoint", *given, (None, 600)))
        all_hooks += _checkpoint_hooks(folder, scaffold, cadence, save_graph_def)
    all_hooks += [*in_order(hooks), *counters]
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs, recovery=recovery)


def _inside(
    directory: str | os.PathLike[str] | None, folder: str | None
) -> str | os.PathLike[str] | None:
    if directory is None or folder is None:
        return None
    # Not a Path, which would make gs:/ of gs://.
    return f"{directory}/{folder}" if folder else directory


def _in_step(role: Role, cadence: Cadence) -> Cadence:
    if not role.in_step or cadence[1] is None:
        return cadence
    _log.warning(
        "checkpoints are saved every %d steps, not every %g seconds: all workers take part in "
        "saving, and must do so in the same steps; give save_checkpoint_steps",
        *(_STEPS_TOGETHER, cadence[1]),
    )
    return _STEPS_TOGETHER, None


def _summary_hooks(
    summary_dir: str | os.PathLike[str],
    scaffold: Scaffold,
    count_steps: int | None,
    cadence: Cadence,
) -> Iterator[SessionRunHook]:
    arguments.not_negative(log_step_count_steps=count_steps)
    if count_steps:
        yield StepCounterHook(count_steps, output_dir=summary_dir)
    if cadence != (None, None):
        yield SummarySaverHook(*cadence, output_dir=summary_dir, scaffold=scaffold)


def _checkpoint_hooks(
    checkpoint_dir: str | os.PathLike[str],
    scaffold: Scaffold,
    cadence: Cadence,
    save_graph_def: bool,
) -> Iterator[SessionRunHook]:
    steps, secs = cadence
    if cadence != (None, None):
        yield CheckpointSaverHook(
            checkpoint_dir, secs, steps, scaffold=scaffold, save_graph_def=save_graph_def
        )


def _cadence(what: str, steps: Any, secs: Any, default: Cadence) -> Cadence:
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    steps, secs = (None if it is USE_DEFAULT else it for it in (steps, secs))
    arguments.not_negative(**{f"{what}_steps": steps, f"{what}_secs": secs})
    steps, secs = steps or None, secs or None  # as in TensorFlow, 0 is as good as None
    if steps is not None and secs is not None:
        raise ValueError(
            f"{what}_steps and {what}_secs cannot both be given, got {steps!r} and {secs!r}"
        )
    return steps, secs
