"""``InMemoryEvaluatorHook``: evaluates a model function in a graph of its own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, repeat
from typing import Any

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.graph import Graph, GraphKeys, get_default_graph, inputs
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.parts import kept_apart
from runhooks.graph.plan import inputs_of
from runhooks.hooks.evaluation_results import EvaluationResults
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.means import Means, number
from runhooks.hooks.time_apart import spent_apart
from runhooks.session.nested import LoopStoppedError, NestedLoop, until_stop
from runhooks.session.session import Session
from runhooks.trigger import Due, Timer, Trigger

_log = logging.getLogger("runhooks")

_EVERY_N_ITER = 100
_LOSS = "loss"


class InMemoryEvaluatorHook(SessionRunHook):
    """Evaluates ``estimator.model_fn`` when training starts, every so often, and at its end.

    As the former ``tf.estimator.experimental.InMemoryEvaluatorHook``. ``estimator``: any object
    with a ``model_fn``. It is called in ``begin``, for a graph of its own on the engine of the
    training, with those of ``features``, ``labels``, ``mode="eval"``, ``params`` and ``config``
    that it takes; the last two are attributes of ``estimator``. What it returns has a ``loss``,
    whose mean over the runs is taken, and ``eval_metric_ops``: a dict of pairs by name, or None.
    The second of a pair is run in each run, the first is fetched after the last run.

    ``input_fn()``: an iterable of pairs ``(features, labels)``, or a function of the global step
    that returns one. ``steps``: the most of them for an evaluation; None: all. A model that uses
    none of it is evaluated in one run. In each evaluation
    variables have the values that those of the same name have in the training; local variables and
    the input begin anew. ``hooks`` ride along in its runs; each evaluation is a session of its own
    to them. Its time does not count in steps per second. Metrics are logged, and written to
    ``estimator.eval_dir(name)`` if there is such a method.

    ``every_n_iter``: global steps from one evaluation to the next; or ``trigger``, which then alone
    says when. A resumed run evaluates at the steps of one that was never stopped, and not when it
    starts. ``Saver(metrics=hook.metrics_at)`` keeps the metrics in checkpoints.

    Raises ValueError for numbers that are not above zero, and in ``begin`` for a model without a
    loss or with a metric of that name.
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int | None = _EVERY_N_ITER,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if trigger is not None and every_n_iter == _EVERY_N_ITER:
            every_n_iter = None
        arguments.exactly_one(every_n_iter=every_n_iter, trigger=trigger)
        arguments.whole(steps=steps, every_n_iter=every_n_iter)
        arguments.instance(Trigger, trigger=trigger)
        arguments.given(input_fn=input_fn)
        arguments.function(input_fn=input_fn)
        if not callable(getattr(estimator, "model_fn", None)):
            raise TypeError(f"estimator must have a model_fn, got {estimator!r}")
        self._timer = Timer(trigger or Trigger(every_steps=every_n_iter, at_end=True))
        self._starts = trigger is None
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._loop = NestedLoop(hooks)
        eval_dir = getattr(estimator, "eval_dir", None)
        self._results = EvaluationResults(None if eval_dir is None else eval_dir(name))
        self.hook_name = f"{type(self).__name__}({name})" if name else None
        self._dropped_at: int | None = None  # where a stop has ended an evaluation

    def metrics_at(self, step: int | None) -> dict[str, float]:
        """The metrics of the evaluation at exactly that global step; empty if there was none.

        Raises RuntimeError if the hook was given to no session.
        """
        return self._results.at(step)

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._dropped_at = None
        self._results.open()
        self._names: set[str] | None = None
        self._graph = Graph(get_default_graph().engine)
        with self._graph.as_default():
            get_or_create_global_step()
            self._build()
            self._loop.begin()
        self._graph.finalize()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step = step_of(session)
        self._timer.start(step)
        self._results.start(session)
        is_first = self._timer.last_triggered_step() is None and self._timer.trigger.is_repeated
        if is_first:
            self._timer.update_last_triggered_step(step)
        if (is_first and self._starts) or self._dropped_at == step:
            self._evaluate_in_training(session)

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._evaluate_in_training(run_context.session)
            self._timer.update_last_triggered_step(step)

    def end(self, session: RawSession) -> None:
        # Not noted: a run that goes on from here is to evaluate as if it had not been stopped.
        if self._timer.should_trigger_at_end(step_of(session)):
            self._evaluate(session)

    def state_dict(self) -> Mapping[str, Any]:
        dropped = {} if self._dropped_at is None else {"dropped_at": self._dropped_at}
        return {**self._timer.state_dict(), **dropped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)
        self._dropped_at = state.get("dropped_at")

    def _build(self) -> None:
        given = {
            "mode": "eval",
            "params": getattr(self._estimator, "params", None),
            "config": getattr(self._estimator, "config", None),
        }
        features, labels = inputs(_call(self._input_fn, given), num_outputs=2)
        model_fn = self._estimator.model_fn
        spec = _call(model_fn, {"features": features, "labels": labels, **given})
        if not hasattr(spec, "loss") or not hasattr(spec, "eval_metric_ops"):
            raise TypeError(
                "model_fn must return an object with loss and eval_metric_ops, such as a "
                f"namedtuple, got {spec!r}"
            )
        metric_ops = spec.eval_metric_ops or {}
        if spec.loss is None:
            raise ValueError(f"model_fn must give a loss to be evaluated, got {spec!r}")
        if _LOSS in metric_ops:
            raise ValueError(
                f"eval_metric_ops must not have the name {_LOSS!r}: the mean of the loss has it"
            )
        self._updates = [{_LOSS: spec.loss}, [update for _, update in metric_ops.values()]]
        self._values = {label: value for label, (value, _) in metric_ops.items()}
        # What draws nothing comes to no end, and is the same in each run.
        self._most_runs = self._steps if inputs_of(self._graph, self._updates) else 1

    def _evaluate_in_training(self, training: Any) -> None:
        is_done = self._evaluate(training)
        self._dropped_at = None if is_done else step_of(training)

    def _evaluate(self, training: Any) -> bool:
        """Evaluate now; whether no stop has ended it."""
        step, start = step_of(training), clock.monotonic()
        losses = Means([_LOSS])
        apart = kept_apart(training.graph)
        with spent_apart(training), apart, Session(self._graph) as session:
            try:
                session.load(training.snapshot(), only=self._names_of(training))
                runs = self._loop.run(
                    session,
                    self._updates,
                    until_stop(training, islice(repeat(None), self._most_runs)),
                    lambda results: losses.add(results[0]),
                )
                if not runs:
                    raise RuntimeError("input_fn gave nothing, or an iterator that is at its end")
                values = session.run(self._values)
                found = {label: number(label, value) for label, value in values.items()}
                found |= losses.means()
            except LoopStoppedError as stopped:
                _log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                return False
            except Exception as error:
                error.add_note(f"in the evaluation at step {step}")
                raise
        name = self.hook_name or type(self).__name__
        self._results.record(name, step, found, runs, clock.monotonic() - start)
        return True

    def _names_of(self, training: Any) -> set[str]:
        """The names of the variables that the evaluation takes over from ``training``."""
        if self._names is None:
            ours, theirs = _variable_names(self._graph), _variable_names(training.graph)
            self._names = ours & theirs
            if ours - theirs:
                _log.warning(
                    "the training has no variables named %s: the evaluation uses their initial "
                    "values",
                    sorted(ours - theirs),
                )
        return self._names


def _variable_names(graph: Graph) -> set[str]:
    return {variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}


def _call(fn: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call ``fn`` with those of the arguments ``given`` that it takes."""
    parameters = inspect.signature(fn).parameters
    if any(it.kind is it.VAR_KEYWORD for it in parameters.values()):
        return fn(**given)
    return fn(**{name: value for name, value in given.items() if name in parameters})
