"""Hooks of one job each."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    StopSignal,
)
from runhooks.engines.foreign import graph_of, session_of
from runhooks.errors import OutOfRangeError, good_ends
from runhooks.graph.base import get_default_graph
from runhooks.graph.generators import GeneratorState, has_generator_state
from runhooks.graph.sources import EPOCH
from runhooks.hooks.base import (
    FetchingHook,
    PeriodicHook,
    TensorFlowHook,
    acts_here,
    check_for_end,
    log_of,
    required_global_step,
    step_of,
)
from runhooks.trigger import DefaultSteps, Due, Trigger, timer_of


class CallHook(FetchingHook):
    """Calls a function after every so many epochs or steps.

    ``docs/hooks.md`` says which values it gets, and on which ranks it is called.

        hooks = [rh.CallHook(scheduler.step, every_n_epochs=1)]

    Args:
        fn: Called as ``fn(*values)`` for a list of tensors, ``fn(**values)`` for a dict, and
            ``fn()`` without any.
        tensors: A tensor or its name, a list of these, or a dict of them by parameter of ``fn``.
        every_n_epochs: Call it at the last step of every so many epochs.
        every_n_steps: Call it at the multiples of this number.
        trigger: When to call it.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: Unless exactly one cadence is given. In ``begin``: for an unknown name, a
            cadence in epochs where nothing says when one ends, and tensors at the end that need
            feeds or inputs.
    """

    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        fn: Callable[..., Any],
        tensors: Mapping[str, Any] | Iterable[Any] = (),
        every_n_epochs: float | None = None,
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
        hook_name: str | None = None,
    ) -> None:
        arguments.given(fn=fn)
        arguments.function(fn=fn)
        timer = timer_of(trigger, every_n_epochs=every_n_epochs, every_n_steps=every_n_steps)
        super().__init__(timer, tensors)
        self._fn = fn
        self._is_by_name = isinstance(tensors, Mapping)
        self._counters: list[Any] = []  # keys of the epoch and the global step
        self.hook_name = hook_name

    def begin(self) -> None:
        super().begin()
        self._calls = acts_here(self)
        if self._request is None:
            return
        fetches = self._request.fetches
        counters = EPOCH, required_global_step(self).op.name
        self._counters = [k for k, it in fetches.items() if it.name.partition(":")[0] in counters]
        if self._timer.trigger.at_end:
            check_for_end(get_default_graph(), fetches)

    def end(self, session: RawSession) -> None:
        # Without updating the timer: a run that resumes here keeps to its steps.
        if self._timer.should_trigger_at_end(step_of(session)):
            self._call(None if self._request is None else session.run(self._request.fetches))

    def _take(self, session: RawSession, step: int, values: Any) -> None:
        self._call(values)

    def _call(self, values: Mapping[Any, Any] | None) -> None:
        if not self._calls:
            return
        given = dict(values or {})
        # For lines and files, which may take no number of NumPy.
        given |= {key: int(given[key]) for key in self._counters if key in given}
        if self._is_by_name:
            self._fn(**given)
        else:
            self._fn(*[given[tensor] for tensor in self._tensors.listed])


class FeedFnHook(SessionRunHook):
    """Feeds each run the dict that ``feed_fn()`` returns.

    As in ``tf.compat.v1.train``. It is called before each run, and returns values by tensor.
    TypeError if it is not a function.

        hooks = [rh.FeedFnHook(lambda: {"rate": 0.1})]
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        arguments.given(feed_fn=feed_fn)
        arguments.function(feed_fn=feed_fn)
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


class FinalOpsHook(SessionRunHook):
    """Fetches ``final_ops`` at the end; ``final_ops_values`` then has their values.

    As in ``tf.compat.v1.train``.

        at_end = rh.FinalOpsHook({"accuracy": accuracy})
        hooks = [at_end]  # then: at_end.final_ops_values["accuracy"]

    Args:
        final_ops: Anything that ``session.run`` takes; None: nothing. OutOfRangeError and
            StopIteration are raised again, after a warning.
        final_ops_feed_dict: Values by tensor.

    Raises:
        ValueError, TypeError: When a session is created, for what cannot be fetched or fed.
    """

    asks_on_all: ClassVar[bool] = True

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        arguments.instance(Mapping, final_ops_feed_dict=final_ops_feed_dict)
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of ``final_ops``; None until the loop has ended normally."""
        return self._final_ops_values

    def begin(self) -> None:
        self._final_ops_values = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        # A mistake is reported now, not at the end.
        if self._final_ops is not None:
            graph_of(session.graph).check_run(self._final_ops, self._final_ops_feed_dict or ())

    def end(self, session: RawSession) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, self._final_ops_feed_dict)
        except good_ends() as error:
            log_of(session).warning(
                "FinalOpsHook could not compute final_ops: %s. They have a dependency back to some "
                "input source, which may be exhausted: let them depend on variables alone, or feed "
                "them",
                error,
            )
            raise


class GlobalStepWaiterHook(TensorFlowHook):
    """Delays the first run until the global step has reached ``wait_until_step``.

    As in ``tf.compat.v1.train``, for workers that start one after the other. If the session is
    asked to stop, the first run raises OutOfRangeError; if the coordinator is, only the wait ends.

        hooks = [rh.GlobalStepWaiterHook(wait_until_step=100)]
    """

    def __init__(self, wait_until_step: int) -> None:
        arguments.given(wait_until_step=wait_until_step)
        arguments.steps(-math.inf, wait_until_step=wait_until_step)
        self._wait_until_step = wait_until_step
        self._worker_is_started = False
        self._coord: StopSignal | None = None

    def begin(self) -> None:
        super().begin()
        self._worker_is_started = self._wait_until_step <= 0

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        self._coord = coord

    def next_due(self) -> Due | None:
        return Due() if self._worker_is_started else None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if not self._worker_is_started:
            self._wait(run_context.session)
            self._worker_is_started = True
        return None

    def _wait(self, session: RawSession) -> None:
        raw = session_of(session)
        stop = raw.stop_request
        logged: int | None = None
        while (step := raw.refresh_step() or 0) < self._wait_until_step:
            if self._coord is not None and self._coord.should_stop():
                return
            if logged is None or step - logged >= 1000:
                log_of(session).info(
                    "waiting for the global step to reach %d: it is %d", self._wait_until_step, step
                )
                logged = step
            if stop.wait(0.5):
                raise OutOfRangeError(
                    f"the wait for global step {self._wait_until_step} has ended at {step}: "
                    f"{stop.reason}"
                )


class SavedStateHook(SessionRunHook):
    """Saves the state of objects outside the graph, and restores it when a run resumes.

    Inputs of the graph need no hook. An object that is not in the checkpoint stays as it is.

        loop = {"best": 0.0, "rate": 20.0}
        hooks = [rh.SavedStateHook(loop=loop, noise=np.random.default_rng(0))]

    Args:
        **objects: By name in checkpoints, each name once in all such hooks: anything with
            ``state_dict`` and ``load_state_dict``; a dict or a ``SimpleNamespace`` of numbers,
            texts, arrays and containers of these, replaced in place; a random generator of NumPy or
            ``random.Random``; or the modules ``numpy.random`` and ``random``, for their global
            generators.

    Raises:
        TypeError: For any other object.
    """

    def __init__(self, **objects: Any) -> None:
        self.saved_objects = {name: _with_state(it) for name, it in objects.items()}
        arguments.stateful(**self.saved_objects)


def _with_state(it: Any) -> Any:
    if has_generator_state(it):
        return GeneratorState(it)
    if type(it) is dict:
        return _Content(it)
    return _Content(vars(it)) if isinstance(it, SimpleNamespace) else it


class _Content:
    def __init__(self, content: dict[Any, Any]) -> None:
        self._content = content

    def state_dict(self) -> dict[Any, Any]:
        return dict(self._content)

    def load_state_dict(self, state: Mapping[Any, Any]) -> None:
        self._content.clear()
        self._content.update(state)


_lock = threading.Lock()


class GarbageCollectionHook(PeriodicHook):
    """Turns Python's automatic garbage collection off while training, and collects when due.

    It collects when the session starts, too: all processes pause at the same steps. Automatic
    collection is restored when the last session with such a hook has ended.

        hooks = [rh.GarbageCollectionHook(every_n_steps=1000)]

    Args:
        every_n_steps: Collect at the multiples of this number.
        generation: As for ``gc.collect``. 1 is faster than 2, but never frees objects that outlive
            one collection and then become part of a cycle.
        trigger: When to collect.

    Raises:
        ValueError: If two cadences are given, or ``generation`` is not 0, 1 or 2.
    """

    _was_on: ClassVar[bool]
    _number_in_session: ClassVar[int] = 0

    def __init__(
        self,
        every_n_steps: int | None = DefaultSteps(1000),
        generation: int = 2,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if generation not in (0, 1, 2):
            raise ValueError(f"generation must be 0, 1 or 2, got {generation!r}")
        super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
        self._generation = generation
        self._is_in_session = False

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        with _lock:
            if self._is_in_session:
                return
            if not GarbageCollectionHook._number_in_session:
                GarbageCollectionHook._was_on = gc.isenabled()
                gc.disable()
            GarbageCollectionHook._number_in_session += 1
            self._is_in_session = True
        gc.collect(self._generation)

    def end(self, session: RawSession) -> None:
        super().end(session)
        self._restore()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._restore()

    def _act(self, session: RawSession) -> None:
        super()._act(session)
        gc.collect(self._generation)

    def _restore(self) -> None:
        with _lock:
            if self._is_in_session:
                self._is_in_session = False
                GarbageCollectionHook._number_in_session -= 1
                if self._was_on and not self._number_in_session:
                    gc.enable()
