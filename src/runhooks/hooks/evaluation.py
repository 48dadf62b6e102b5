"""``EvaluationHook``: evaluates in the middle of the training, with the variables it trains."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines import foreign
from runhooks.graph import Tensor, get_default_graph
from runhooks.graph.parts import kept_apart
from runhooks.hooks.evaluation_inputs import check_no_step, inputs_apart
from runhooks.hooks.evaluation_results import EvaluationResults
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.means import Means
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.hooks.summary_output import SummaryWriter
from runhooks.hooks.time_apart import spent_apart
from runhooks.session.nested import LoopStoppedError, NestedLoop, until_stop
from runhooks.trigger import Due, Trigger, timer_of

_log = logging.getLogger("runhooks")

FeedDict = Mapping[Any, Any]


class EvaluationHook(SessionRunHook):
    """Computes the means of ``metrics`` over a few runs, beside the training, and writes them.

    ``metrics``: tensors, or names of tensors, by the tag they are written under; each a single
    number a run. ``feeds``: called for each evaluation, returns the feed_dicts of its runs. Without
    it the inputs of the graph that ``metrics`` need begin anew in each evaluation, which ends with
    the first of them; if they need none it is one run, or ``steps``. On a ``tf.Graph`` such an
    input is the iterator of one dataset; whatever else they use, such as the local variables of
    ``tf.metrics``, one of ``hooks`` has to reset. ``steps``: the most runs of an evaluation.
    ``weight``: a tensor, how much a run counts in the means, such as the number of examples in its
    batch; None: all count the same.

    ``every_n_steps``, ``every_n_secs`` or ``trigger``: when, from the step on at which training
    began; at the end only if a ``trigger`` says so, for a run that is preempted has to save before
    it is killed. It evaluates the state that the step led to, before a checkpoint of it is saved.
    A resumed run evaluates at the steps of one that was never stopped: where a stop has ended an
    evaluation, it begins with that one.

    ``hooks`` ride along in the runs of an evaluation, each of which is a session of its own to
    them; a stop that they ask for ends it, and not the training. The hooks of the training are not
    called, and the time does not count in steps per second. Metrics are written to ``output_dir``,
    if no ``summary_writer`` is given, and logged. ``hook_name``: as in ``SessionRunHook``.

    ``Saver(metrics=hook.metrics_at)`` keeps them in checkpoints; as the ``estimator`` of
    ``stop_if_no_decrease_hook`` and its like it ends the training.

    Raises ValueError unless exactly one cadence is given; TypeError for ``metrics`` that are no
    dict and ``feeds`` that is no function; in ``begin``, ValueError for metrics that only a step of
    ``rh.torch`` has. In an evaluation: ValueError if ``metrics`` draw from an
    input of the training, change a saved variable or are no single numbers, RuntimeError if there
    is nothing to evaluate on.
    """

    def __init__(
        self,
        metrics: Mapping[str, Tensor | str],
        feeds: Callable[[], Iterable[FeedDict]] | None = None,
        every_n_steps: int | None = None,
        every_n_secs: float | None = None,
        *,
        trigger: Trigger | None = None,
        steps: int | None = None,
        weight: Tensor | str | None = None,
        hooks: Iterable[SessionRunHook] = (),
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        hook_name: str | None = None,
    ) -> None:
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metrics must be a dict of tensors by name, got {metrics!r}")
        if feeds is not None and not callable(feeds):
            raise TypeError(
                "feeds must be a function that returns the feed_dicts of one evaluation, got "
                f"{feeds!r}"
            )
        if not metrics or not all(isinstance(label, str) for label in metrics):
            raise ValueError(f"metrics must be one tensor or more, each by a str, got {metrics!r}")
        arguments.whole(steps=steps)
        self._timer = timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        self._metrics = NamedTensors(metrics)
        self._given_feeds = feeds
        self._steps = steps
        self._weight = weight
        self._loop = NestedLoop(hooks)
        self._output_dir = output_dir
        self._results = EvaluationResults(output_dir, summary_writer)
        self.hook_name = hook_name
        self._dropped_at: int | None = None  # where a stop has ended an evaluation

    def metrics_at(self, step: int | None) -> dict[str, float]:
        """The metrics of the evaluation at exactly that global step; empty if there was none.

        Raises RuntimeError if the hook was given to no session.
        """
        return self._results.at(step)

    def eval_dir(self) -> str:
        """The directory it writes to. Raises ValueError if it was given no ``output_dir``."""
        if self._output_dir is None:
            raise ValueError("this EvaluationHook has no output_dir: give it one to read from")
        return str(self._output_dir)

    def check_in_session(self) -> None:
        """Raise RuntimeError if the hook was given to no session, and will never evaluate."""
        self._results.check_open()

    def begin(self) -> None:
        required_global_step(self)
        self._fetches: list[Any] = [self._metrics.fetches()]
        if self._weight is not None:
            self._fetches.append(get_default_graph().as_graph_element(self._weight))
        check_no_step(get_default_graph(), self._fetches)
        self._timer.reset()
        self._dropped_at = None
        self._results.open()
        self._loop.begin()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step = step_of(session)
        self._timer.start(step)
        if self._timer.trigger.is_repeated and self._timer.last_triggered_step() is None:
            self._timer.update_last_triggered_step(step)
        self._results.start(session)
        if self._dropped_at == step:
            self._evaluate_in_training(session, None)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._evaluate_in_training(run_context.session, run_context.original_args)
            self._timer.update_last_triggered_step(step)

    def end(self, session: RawSession) -> None:
        # Not noted: a run that goes on from here is to evaluate as if it had not been stopped.
        if self._timer.should_trigger_at_end(step_of(session)):
            self._evaluate(session, None)

    def state_dict(self) -> Mapping[str, Any]:
        dropped = {} if self._dropped_at is None else {"dropped_at": self._dropped_at}
        return {**self._timer.state_dict(), **dropped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)
        self._dropped_at = state.get("dropped_at")

    def _evaluate_in_training(self, session: RawSession, training: SessionRunArgs | None) -> None:
        is_done = self._evaluate(session, training)
        self._dropped_at = None if is_done else step_of(session)

    def _evaluate(self, session: RawSession, training: SessionRunArgs | None) -> bool:
        """Evaluate now; whether no stop has ended it."""
        step, start = step_of(session), clock.monotonic()
        means = Means(self._fetches[0])
        # Of a session that TensorFlow's own loop runs, hooks see what they see of ours.
        raw = session if hasattr(session, "global_step") else foreign.observed(session)
        with spent_apart(session), kept_apart(session.graph):
            try:
                runs = self._loop.run(
                    raw,
                    self._fetches,
                    until_stop(session, self._feeds(raw, training)),
                    lambda results: means.add(*results),
                )
                found = means.means() if runs else {}
            except LoopStoppedError as stopped:
                _log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                return False
            except Exception as error:
                error.add_note(f"in the evaluation at step {step}")
                raise
        if not runs:
            raise RuntimeError(
                f"the evaluation at step {step} made no run: its feeds or inputs gave nothing. "
                "Each evaluation iterates them anew: an iterator serves the first one alone"
            )
        name = self.hook_name or type(self).__name__
        self._results.record(name, step, found, runs, clock.monotonic() - start)
        return True

    def _feeds(self, session: Any, training: SessionRunArgs | None) -> Iterator[FeedDict | None]:
        feeds = repeat(None) if self._given_feeds is None else self._given_feeds()
        if not isinstance(feeds, Iterable):
            raise TypeError(f"feeds must return an iterable of feed_dicts, got {feeds!r}")
        for number, feed_dict in enumerate(islice(feeds, self._steps)):
            if number == 0:
                inputs = inputs_apart(session, self._fetches, feed_dict, training)
                if inputs:
                    session.rewind(*inputs)
                elif self._given_feeds is None and self._steps is None:
                    yield None
                    return
            yield feed_dict
