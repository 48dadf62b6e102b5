"""``InMemoryEvaluatorHook``: evaluates a model function in a graph of its own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
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
from runhooks.graph import GraphKeys, get_default_graph
from runhooks.graph.parts import kept_apart
from runhooks.hooks.estimator import configured, eval_dir_of
from runhooks.hooks.evaluation_graph import EvaluationGraph, evaluation_graph
from runhooks.hooks.evaluation_results import EvaluationResults
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.means import Means, number
from runhooks.hooks.time_apart import spent_apart
from runhooks.session.hook_names import in_order
from runhooks.session.launcher import launcher_of
from runhooks.session.nested import LoopStoppedError, NestedLoop, until_stop
from runhooks.session.scaffold import Scaffold
from runhooks.summary import Summary, Value, tensor_value
from runhooks.summary.kinds.real_array import read_array
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
    The second of a pair is run in each run, the first is fetched after the last run: a number, or,
    to be written alone, an array or a serialized summary. It may have a
    ``scaffold``, without saver and ``init_fn``, and ``evaluation_hooks``, as an ``EstimatorSpec``.

    ``input_fn()``: an iterable of pairs ``(features, labels)``, or a function of the global step
    that returns one; on a ``tf.Graph`` a dataset of pairs or features, or tensors of these.
    ``steps``: the most of them for an evaluation; None: all. A model that uses none of it is
    evaluated in one run, or ``steps``. In each evaluation variables have the values that those of
    the same name have in the training; local variables and the input begin anew. ``hooks`` ride
    along in its runs; each evaluation is a session of its own to them. Its time does not count in
    steps per second. Metrics are logged, and written to ``estimator.eval_dir(name)``, or to
    ``eval`` or ``eval_<name>`` in its ``model_dir``, if it has either.

    ``every_n_iter``: global steps from one evaluation to the next; or ``trigger``, which then alone
    says when. A resumed run evaluates at the steps of one that was never stopped, and not when it
    starts. ``Saver(metrics=hook.metrics_at)`` keeps the metrics in checkpoints.

    Raises ValueError for numbers that are not above zero and an ``estimator`` whose ``config`` is
    of a cluster, and in ``begin`` for a model without a loss or with a metric of that name.
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
        _check_is_local(estimator)
        self._timer = Timer(trigger or Trigger(every_steps=every_n_iter, at_end=True))
        self._starts = trigger is None
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = in_order(hooks)
        self._results = EvaluationResults(eval_dir_of(estimator, name))
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
        self._parallel = evaluation_graph(get_default_graph())
        with self._parallel.graph.as_default():
            self._build()

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
        features, labels = self._parallel.draw(_call(self._input_fn, given))
        model_fn = self._estimator.model_fn
        spec = _call(model_fn, {"features": features, "labels": labels, **given})
        _check_spec(spec)
        metric_ops = spec.eval_metric_ops or {}
        self._updates = [{_LOSS: spec.loss}, [update for _, update in metric_ops.values()]]
        self._values = {label: value for label, (value, _) in metric_ops.items()}
        # What draws nothing comes to no end, and is the same in each run.
        is_endless = self._steps is None and not self._parallel.draws(self._updates)
        self._most_runs = 1 if is_endless else self._steps
        more_hooks = getattr(spec, "evaluation_hooks", None) or ()
        self._loop = NestedLoop([_InputStart(self._parallel), *self._hooks, *more_hooks])
        self._loop.begin()
        self._parallel.complete()
        self._scaffold = Scaffold(copy_from_scaffold=getattr(spec, "scaffold", None)).finalize()

    def _evaluate_in_training(self, training: Any) -> None:
        is_done = self._evaluate(training)
        self._dropped_at = None if is_done else step_of(training)

    def _evaluate(self, training: Any) -> bool:
        """Evaluate now; whether no stop has ended it."""
        step, start = step_of(training), clock.monotonic()
        losses = Means([_LOSS])
        apart = kept_apart(training.graph)
        with spent_apart(training), apart, self._parallel.graph.as_default():
            try:
                with closing(self._session(training)) as session:
                    runs = self._loop.run(
                        session,
                        self._updates,
                        until_stop(training, islice(repeat(None), self._most_runs)),
                        lambda results: losses.add(results[0]),
                    )
                    if not runs:
                        raise RuntimeError(
                            "input_fn gave nothing, or an iterator that is at its end"
                        )
                    values = session.run(self._values)
                found = {tag: number(tag, it) for tag, it in values.items() if _is_number(it)}
                rest = {tag: it for tag, it in values.items() if tag not in found}
                found |= losses.means()
            except LoopStoppedError as stopped:
                _log.warning("the evaluation at step %d is dropped: %s", step, stopped)
                return False
            except Exception as error:
                error.add_note(f"in the evaluation at step {step}")
                raise
        name, secs = self.hook_name or type(self).__name__, clock.monotonic() - start
        more = [part for tag, value in rest.items() for part in _written(tag, value)]
        self._results.record(name, step, found, runs, secs, more)
        return True

    def _session(self, training: Any) -> Any:
        """A session that begins with the values of ``training``."""
        names = self._names_of(training)
        scaffold = Scaffold(
            init_fn=lambda _, session: self._parallel.take_over(session, training, names),
            copy_from_scaffold=self._scaffold,
        )
        config = configured(self._estimator, "session_config")
        launcher = launcher_of(self._parallel.graph)
        return launcher.prepare(scaffold, "", config, None, None)

    def _names_of(self, training: Any) -> set[str]:
        """The names of the variables that the evaluation takes over from ``training``."""
        if self._names is None:
            ours, theirs = map(_variable_names, (self._parallel.graph, training.graph))
            self._names = ours & theirs
            if ours - theirs:
                _log.warning(
                    "the training has no variables named %s: the evaluation uses their initial "
                    "values",
                    sorted(ours - theirs),
                )
        return self._names


class _InputStart(SessionRunHook):
    def __init__(self, parallel: EvaluationGraph) -> None:
        self._parallel = parallel

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._parallel.start_inputs(session, coord)


def _check_is_local(estimator: Any) -> None:
    servers = configured(estimator, "num_ps_replicas") or 0
    workers = configured(estimator, "num_worker_replicas") or 0
    if servers > 0 or workers > 1:
        raise ValueError(
            "an evaluation in memory supports only single machine training, got an estimator whose "
            f"config has num_ps_replicas={servers} and num_worker_replicas={workers}"
        )


def _check_spec(spec: Any) -> None:
    if not hasattr(spec, "loss") or not hasattr(spec, "eval_metric_ops"):
        raise TypeError(
            "model_fn must return an object with loss and eval_metric_ops, such as a "
            f"namedtuple, got {spec!r}"
        )
    if spec.loss is None:
        raise ValueError(f"model_fn must give a loss to be evaluated, got {spec!r}")
    if _LOSS in (spec.eval_metric_ops or {}):
        raise ValueError(
            f"eval_metric_ops must not have the name {_LOSS!r}: the mean of the loss has it"
        )
    for name in ("saver", "init_fn"):
        given = getattr(getattr(spec, "scaffold", None), name, None)
        if given is not None:
            raise ValueError(
                f"an evaluation in memory does not support custom {name}, got {given!r} in the "
                "scaffold: its variables begin with the values of the training"
            )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bytes) and read_array(value).size == 1


def _written(tag: str, value: Any) -> Iterable[Value]:
    """What is written of a metric that is no number: a summary, or an array."""
    if isinstance(value, bytes):
        return Summary.FromString(value)
    return [tensor_value(tag, read_array(value))]


def _variable_names(graph: Any) -> set[str]:
    return {variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}


def _call(fn: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call ``fn`` with those of the arguments ``given`` that it takes."""
    parameters = inspect.signature(fn).parameters
    if any(it.kind is it.VAR_KEYWORD for it in parameters.values()):
        return fn(**given)
    return fn(**{name: value for name, value in given.items() if name in parameters})
