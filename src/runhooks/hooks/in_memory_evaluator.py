"""``InMemoryEvaluatorHook``: evaluates a model function in a graph of its own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice, repeat
from typing import Any

from runhooks import arguments
from runhooks.arrays import to_numpy
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook, StopSignal
from runhooks.graph import Graph, GraphKeys, get_default_graph, inputs
from runhooks.graph.base import BaseGraph, EvaluationGraph
from runhooks.graph.build import get_or_create_global_step
from runhooks.graph.graph import own_graph
from runhooks.hooks.early_stopping import configured, eval_dir_of
from runhooks.hooks.helpers.evaluations import (
    EvaluatingHook,
    Evaluation,
    EvaluationResults,
    Means,
    number,
)
from runhooks.session.hook_list import in_order
from runhooks.session.nested import NestedLoop, until_stop
from runhooks.session.opening import opener_of
from runhooks.session.scaffold import Scaffold
from runhooks.summary import Summary, Value, tensor_value
from runhooks.trigger import DefaultSteps, FirstStepTimer, Timer, Trigger, trigger_of


class OwnEvaluationGraph(EvaluationGraph):
    """An empty graph on the engine of the graph ``training``."""

    def __init__(self, training: Graph) -> None:
        self.graph = Graph(training.engine)
        get_or_create_global_step(self.graph)

    def draw(self, given: Any) -> tuple[Any, Any]:
        features, labels = inputs(given, num_outputs=2)
        return features, labels

    def draws(self, fetches: Any) -> bool:
        return bool(self.graph.effects_of(fetches).inputs)

    def copy_variables(
        self, session: RawSession, training: RawSession, names: Collection[str]
    ) -> None:
        session.load(training.snapshot(), only=names)


def evaluation_graph(training: BaseGraph) -> EvaluationGraph:
    """Return an empty graph of the kind and the engine of the graph ``training``."""
    made = training.evaluation_graph()
    if made is not None:
        return made
    return OwnEvaluationGraph(own_graph(training))


_log = logging.getLogger("runhooks")

_EVERY_N_ITER = DefaultSteps(100)
_LOSS = "loss"


class InMemoryEvaluatorHook(EvaluatingHook):
    """Evaluates ``estimator.model_fn`` when training starts, at a cadence, and at the end.

    Like the former ``tf.estimator.experimental.InMemoryEvaluatorHook``.

    In each evaluation, variables have the values of the variables with the same name in the
    training; local variables and the input start over. A model that does not use its input is
    evaluated in one run, or in ``steps``
    runs. The time of evaluations does not count in steps per second. Metrics are
    logged, and written to ``estimator.eval_dir(name)``, or to ``eval`` or ``eval_<name>`` in its
    ``model_dir``, if it has either. A resumed run evaluates at the same steps as an uninterrupted
    one, and not when it starts. ``Saver(metrics=hook.metrics_at)`` keeps the metrics in
    checkpoints.

        hooks = [rh.InMemoryEvaluatorHook(estimator, input_fn, steps=10, every_n_iter=100)]

    Args:
        estimator: Any object with a ``model_fn``, which is called in ``begin``, to build a separate
            graph on the same engine. It is called with those arguments that it takes of
            ``features``, ``labels``, ``mode="eval"``, ``params`` and ``config``; the last two are
            attributes of ``estimator``. It returns an object like an ``EstimatorSpec``, with a
            ``loss``, which is averaged over the runs, and ``eval_metric_ops``: None, or a dict of
            pairs ``(value, update)`` by name. ``update`` is run in each run, and ``value`` is
            fetched after the last one: a number, or an array or a serialized summary, which are
            only written. The object may have a ``scaffold``, without saver and ``init_fn``, and
            ``evaluation_hooks``.
        input_fn: A function that returns an iterable of pairs ``(features, labels)``, or a
            function of the global step that returns one; on a ``tf.Graph`` a dataset of pairs or
            features, or tensors of these.
        steps: The maximum number of input elements in an evaluation; None: all.
        hooks: Called in the runs of an evaluation; for them, each evaluation is a separate session.
        name: Added to the names of the directory and of the hook.
        every_n_iter: Global steps from one evaluation to the next.
        trigger: When to evaluate; training does not then evaluate at its start or end.

    Raises:
        ValueError: For numbers that are not above zero, or an ``estimator`` whose ``config``
            describes a cluster. In ``begin``: if the model has no loss, or has a metric named
            ``loss``.
        TypeError: If ``estimator`` has no ``model_fn`` or ``input_fn`` is not a function.
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
        chosen = trigger_of(trigger, every_n_iter=every_n_iter)
        arguments.whole(steps=steps)
        arguments.given(input_fn=input_fn)
        arguments.function(input_fn=input_fn)
        if not callable(getattr(estimator, "model_fn", None)):
            raise TypeError(f"estimator must have a model_fn, got {estimator!r}")
        _check_is_local(estimator)
        super().__init__(
            Timer(trigger) if trigger else FirstStepTimer(replace(chosen, at_end=True)),
            EvaluationResults(eval_dir_of(estimator, name)),
            at_start=trigger is None,
        )
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = in_order(hooks)
        self.hook_name = f"{type(self).__name__}({name})" if name else None

    def begin(self) -> None:
        super().begin()
        self._names: set[str] | None = None
        self._evaluation = evaluation_graph(get_default_graph())
        with self._evaluation.graph.as_default():
            self._build()

    def _build(self) -> None:
        given = {
            "mode": "eval",
            "params": getattr(self._estimator, "params", None),
            "config": getattr(self._estimator, "config", None),
        }
        source = _call(self._input_fn, given)
        if source is None:
            raise TypeError("input_fn must return the input of an evaluation, got None")
        features, labels = self._evaluation.draw(source)
        model_fn = self._estimator.model_fn
        spec = _call(model_fn, {"features": features, "labels": labels, **given})
        _check_spec(spec)
        metric_ops = spec.eval_metric_ops or {}
        self._updates = [{_LOSS: spec.loss}, [update for _, update in metric_ops.values()]]
        self._values = {label: value for label, (value, _) in metric_ops.items()}
        # Without an input nothing would end the runs, and all of them would be the same.
        is_endless = self._steps is None and not self._evaluation.draws(self._updates)
        self._most_runs = 1 if is_endless else self._steps
        more_hooks = getattr(spec, "evaluation_hooks", None) or ()
        self._loop = NestedLoop([_InputStart(self._evaluation), *self._hooks, *more_hooks])
        self._loop.begin()
        self._evaluation.complete()
        self._scaffold = Scaffold(copy_from_scaffold=getattr(spec, "scaffold", None)).finalize()

    def _run_evaluation(self, session: RawSession, training: SessionRunArgs | None) -> Evaluation:
        losses = Means([_LOSS])
        feeds = until_stop(session, islice(repeat(None), self._most_runs))
        with self._evaluation.graph.as_default(), closing(self._open(session)) as evaluating:
            runs = self._loop.run(
                evaluating, self._updates, feeds, lambda results: losses.add(results[0])
            )
            if not runs:
                raise RuntimeError("input_fn gave nothing, or an iterator that is exhausted")
            values = evaluating.run(self._values)
        found = {tag: number(tag, it) for tag, it in values.items() if _is_number(it)}
        more = (_written(tag, it) for tag, it in values.items() if tag not in found)
        return Evaluation(found | losses.means(), runs, tuple(it for some in more for it in some))

    def _open(self, training: RawSession) -> Any:
        """Open a session that begins with the values of ``training``."""
        names = self._names_of(training)
        scaffold = Scaffold(
            init_fn=lambda _, session: self._evaluation.copy_variables(session, training, names),
            copy_from_scaffold=self._scaffold,
        )
        config = configured(self._estimator, "session_config")
        opener = opener_of(self._evaluation.graph)
        return opener.open_chief(scaffold, "", config, None, None)

    def _names_of(self, training: RawSession) -> set[str]:
        """Return the names of the variables that get their values from ``training``."""
        if self._names is None:
            ours, theirs = map(_variable_names, (self._evaluation.graph, training.graph))
            self._names = ours & theirs
            if ours - theirs:
                _log.warning(
                    "the training has no variables named %s: the evaluation uses their initial "
                    "values",
                    sorted(ours - theirs),
                )
        return self._names


class _InputStart(SessionRunHook):
    def __init__(self, evaluation: EvaluationGraph) -> None:
        self._evaluation = evaluation

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._evaluation.start_inputs(session, coord)


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
    for name, pair in (spec.eval_metric_ops or {}).items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"eval_metric_ops must be pairs (value, update) by name, such as tf.metrics.mean "
                f"returns, got {pair!r} as {name!r}"
            )
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
    return not isinstance(value, bytes) and to_numpy(value).size == 1


def _written(tag: str, value: Any) -> Iterable[Value]:
    """Return what is written of a metric that is not a number: a summary, or an array."""
    if isinstance(value, bytes):
        return Summary.FromString(value)
    return [tensor_value(tag, to_numpy(value))]


def _variable_names(graph: Any) -> set[str]:
    return {variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}


def _call(fn: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call ``fn`` with those of the arguments ``given`` that it takes."""
    parameters = inspect.signature(fn).parameters
    if any(it.kind is it.VAR_KEYWORD for it in parameters.values()):
        return fn(**given)
    return fn(**{name: value for name, value in given.items() if name in parameters})
