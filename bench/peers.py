"""The same for a peer: CLU's periodic actions."""

from __future__ import annotations

import tempfile

from clu import periodic_actions

from bench import ours
from bench.measure import NEVER, Contender, Loop


def clu() -> Loop:
    """Three actions, none due, after each bare jitted call."""
    call, state, step = ours.compiled(), ours.initial(), 0
    actions = [
        periodic_actions.PeriodicCallback(every_steps=NEVER, callback_fn=print),
        periodic_actions.ReportProgress(every_steps=NEVER, every_secs=None),
        periodic_actions.Profile(logdir=tempfile.mkdtemp(), every_secs=None, first_profile=NEVER),
    ]

    def loop(times: int) -> None:
        nonlocal state, step
        for _ in range(times):
            state = call(state)
            step += 1
            for action in actions:
                action(step)

    return loop


def contenders() -> list[Contender]:
    """Over the bare jitted call of ours."""
    return [Contender("CLU: three actions, none due", clu(), "jitted call, bare")]
