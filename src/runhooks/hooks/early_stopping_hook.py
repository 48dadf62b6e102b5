"""``EarlyStoppingHook``: asks to stop when a function says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.graph import Tensor, get_default_graph
from runhooks.hooks.estimator import configured
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.trigger import Due, Trigger, timer_of

_log = logging.getLogger("runhooks")

#: How often it looks if nothing else is said; it gives way to a trigger.
RUN_EVERY_SECS = 60.0


class EarlyStoppingHook(SessionRunHook):
    """Asks to stop once ``should_stop()`` is true; ``name`` is what it is called.

    ``estimator``: what tells by its ``config.is_chief`` whether this is the chief of a cluster of
    TensorFlow, whose workers it tells to stop too, or a worker, which stops when it is told, and
    not by ``should_stop``; neither, if it is None or tells nothing.

    Raises ValueError unless exactly one of ``run_every_secs``, ``run_every_steps`` and ``trigger``
    is given.
    """

    def __init__(
        self,
        name: str,
        should_stop: Callable[[], bool],
        estimator: Any,
        run_every_secs: float | None,
        run_every_steps: int | None,
        trigger: Trigger | None,
    ) -> None:
        if trigger is not None and run_every_secs == RUN_EVERY_SECS:
            run_every_secs = None
        self._timer = timer_of(
            trigger, run_every_secs=run_every_secs, run_every_steps=run_every_steps
        )
        self._should_stop = should_stop
        self._is_chief = configured(estimator, "is_chief")
        self.hook_name = name

    def begin(self) -> None:
        # Sessions of graphs without such a flag share nothing.
        make_flag = getattr(get_default_graph(), "stop_flag", lambda: None)
        self._flag: Any = None if self._is_chief is None else make_flag()
        self._told: Tensor | None = None  # what a worker fetches to be told
        if self._flag is not None and not self._is_chief:
            self._told = self._flag.tensor
        else:
            required_global_step(self)
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        if self._told is not None:
            return
        self._timer.start(step_of(session))
        if self._flag is not None:
            self._flag.clear(session)

    def next_due(self) -> Due | None:
        return None if self._told is not None else self._timer.due()

    def watched(self) -> Tensor | None:
        return self._told

    def watch(self, step: int | None, value: Any) -> bool:
        if value:
            _log.info("%s: the chief has asked to stop", self.hook_name)
        return bool(value)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return None if self._told is None else SessionRunArgs(self._told)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._told is not None:
            if self.watch(None, run_values.results):
                run_context.request_stop()
            return
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                _log.info("%s asks to stop at step %d", self.hook_name, step)
                if self._flag is not None:
                    self._flag.set(run_context.session)
                run_context.request_stop()

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)
