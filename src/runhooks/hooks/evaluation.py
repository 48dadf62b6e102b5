"""``EvaluationHook``: evaluates in the middle of the training, with the variables it trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook
from runhooks.engines.foreign import graph_of
from runhooks.graph import GraphKeys, Tensor, get_default_graph
from runhooks.graph.base import BaseGraph
from runhooks.hooks.base import SummaryWriter
from runhooks.hooks.ema import EmaHook
from runhooks.hooks.metrics import (
    EvaluatingHook,
    Evaluation,
    EvaluationMetric,
    number,
    unknown_metric,
)
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.session.nested import NestedLoop, until_stop
from runhooks.trigger import Trigger, timer_of

FeedDict = Mapping[Any, Any]


class Means:
    """The mean of each metric over the runs of an evaluation, weighted if runs have a weight.

    A value is read when the next one arrives: the device computes that one meanwhile.

    Args:
        labels: The names of the metrics.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._sums = dict.fromkeys(labels, 0.0)
        self._weight = 0.0
        self._unread: tuple[Mapping[str, Any], Any] | None = None

    def add(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Add the values of one run, a single number each.

        Raises:
            ValueError, TypeError: If a value is not a single number.
        """
        self._read()
        self._unread = values, weight

    def means(self) -> dict[str, float]:
        """Return the means by label.

        Raises:
            ValueError: If all weights were 0.
        """
        self._read()
        if not self._weight:
            raise ValueError("weight was 0 in all runs: there is nothing to take the mean of")
        return {label: total / self._weight for label, total in self._sums.items()}

    def _read(self) -> None:
        if self._unread is None:
            return
        (values, given), self._unread = self._unread, None
        weight = number("weight", given)
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight!r}")
        if weight:  # the mean of a batch without examples is NaN
            self._weight += weight
            for label in self._sums:
                self._sums[label] += weight * number(label, values[label])


class EvaluationHook(EvaluatingHook):
    """Evaluates during training: computes the means of ``metrics`` over some runs, and writes them.

    It evaluates the state after a step before any other hook acts on that step, whatever the order
    of the hooks, so ``stop_if_no_decrease_hook`` and checkpoints use the metrics of the same step.
    A resumed run evaluates at the same steps as an uninterrupted one, has the metrics found so far,
    which checkpoints hold, and repeats an evaluation that a stop has cut off. It evaluates at the
    end only with ``Trigger(at_end=True)``, because a preempted run must save before it is killed.

    The session's other hooks are not called in an evaluation, and its time does not count in steps
    per second. The metrics are logged, and written under their tags.

    ``Saver(metrics=hook.metrics_at)`` keeps them in checkpoints. Pass ``hook.metric("accuracy")``
    to ``stop_if_no_increase_hook`` or ``ReduceOnPlateauHook`` to act on a metric.

        evaluation = rh.EvaluationHook(
            {"accuracy": accuracy}, every_n_steps=100, output_dir="runs/a/eval"
        )
        hooks = [evaluation, rh.stop_if_higher_hook(evaluation.metric("accuracy"), threshold=0.99)]

    Args:
        metrics: Tensors, or their names, by the tag to write them under. Each is a single number
            per run.
        feeds: Called for each evaluation; returns the feed_dicts of its runs. None: the inputs of
            ``metrics`` start over in each evaluation, which ends when the first of them does;
            without inputs, an evaluation is one run, or ``steps`` runs. On a ``tf.Graph``, such an
            input is the iterator of one dataset; one of ``hooks`` has to reset anything else, such
            as the local variables of ``tf.metrics``.
        every_n_steps: Evaluate at the multiples of this number.
        every_n_secs: Evaluate every this many seconds.
        trigger: Says when to evaluate.
        steps: The maximum number of runs of an evaluation.
        averages: Evaluate with these moving averages in place of the parameters, which are always
            restored afterwards. The ``EmaHook`` has to be in the same session.
        weight: A tensor or its name: the weight of a run in the means, such as the number of
            examples in its batch. None: all runs have the same weight.
        hooks: Called in the runs of an evaluation; for them, each evaluation is a separate session.
            If one asks to stop, the evaluation ends and the training continues.
        output_dir: The directory to write to if ``summary_writer`` is None. With neither, metrics
            are only logged: the hook does not write to the directory of its session.
        summary_writer: The writer to write with.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: Unless exactly one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
            given. In ``begin``: if ``metrics`` need a training step of ``rh.torch``. In an
            evaluation: if ``metrics`` draw from an input of the training, change a saved variable,
            or are not single numbers. Parameters and buffers of PyTorch that functions change in
            place stay changed: a warning names one.
        TypeError: If ``metrics`` is not a dict or ``feeds`` is not a function.
        RuntimeError: In an evaluation: if feeds or inputs are empty.
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
        averages: EmaHook | None = None,
        weight: Tensor | str | None = None,
        hooks: Iterable[SessionRunHook] = (),
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        hook_name: str | None = None,
    ) -> None:
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"metrics must be a dict of tensors by name, got {metrics!r}; of a tensor whose "
                'value is a dict, give its numbers: {"accuracy": tensor["accuracy"]}'
            )
        if feeds is not None and not callable(feeds):
            raise TypeError(
                "feeds must be a function that returns the feed_dicts of one evaluation, got "
                f"{feeds!r}"
            )
        if not metrics or not all(isinstance(label, str) for label in metrics):
            raise ValueError(f"metrics must be one tensor or more, each by a str, got {metrics!r}")
        arguments.whole(steps=steps)
        timer = timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        super().__init__(timer, output_dir, summary_writer, hook_name)
        self._metrics = NamedTensors(metrics)
        self._given_feeds = feeds
        arguments.instance(EmaHook, averages=averages)
        self._averages = averages
        self._steps = steps
        self._weight = weight
        self._loop = NestedLoop(hooks)

    def metric(self, name: str) -> EvaluationMetric:
        """As ``EvaluatingHook.metric``; raise ValueError if it has no metric of that name."""
        found = super().metric(name)
        if name not in self._metrics.by_key:
            raise unknown_metric(name, self.title, list(self._metrics.by_key))
        return found

    def begin(self) -> None:
        super().begin()
        self._fetches: list[Any] = [self._metrics.fetches()]
        if self._weight is not None:
            self._fetches.append(get_default_graph().as_graph_element(self._weight))
        _check_no_step(get_default_graph(), self._fetches)
        self._loop.begin()

    def _run_evaluation(self, session: RawSession, training: SessionRunArgs | None) -> Evaluation:
        if self._averages is None:
            return self._evaluate_parameters(session, training)
        with self._averages.substituted(session):
            return self._evaluate_parameters(session, training)

    def _evaluate_parameters(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> Evaluation:
        means = Means(self._fetches[0])
        feeds = until_stop(session, self._feeds(session, training))
        runs = self._loop.run(session, self._fetches, feeds, lambda results: means.add(*results))
        if not runs:
            raise RuntimeError(
                "the evaluation made no run: its feeds or inputs gave nothing. Each evaluation "
                "iterates them from the start: a generator or iterator serves only the first one"
            )
        return Evaluation(means.means(), runs)

    def _feeds(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> Iterator[FeedDict | None]:
        feeds = repeat(None) if self._given_feeds is None else self._given_feeds()
        if not isinstance(feeds, Iterable):
            raise TypeError(f"feeds must return an iterable of feed_dicts, got {feeds!r}")
        for index, feed_dict in enumerate(islice(feeds, self._steps)):
            if index == 0:
                inputs = self._own_inputs(session, feed_dict, training)
                if inputs:
                    session.rewind(*inputs)
                elif self._given_feeds is None and self._steps is None:
                    yield None
                    return
            yield feed_dict

    def _own_inputs(
        self, session: RawSession, feed_dict: FeedDict | None, training: SessionRunArgs | None
    ) -> list[Any]:
        """Return the inputs of an evaluation; of TensorFlow, iterators and queues.

        A training and its evaluation may share an iterator that can be switched to other data, or a
        queue.

        Args:
            session: The session of the training.
            feed_dict: The feeds of the first run of the evaluation.
            training: The request of the training for a run, if it is known.

        Raises:
            ValueError: If both draw from one input, or if the evaluation changes a saved variable,
                with which the training would go on.
        """
        graph, feeds = graph_of(session.graph), feed_dict or ()
        saved = set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
        for op in graph.effects_of(self._fetches, feeds).assignments:
            if op.assigns in saved:
                raise ValueError(
                    f"metrics change the variable {op.assigns.op.name!r}, which belongs to the "
                    "state of the training: an evaluation may change local variables alone"
                )
        inputs = session.inputs_of(self._fetches, feeds)
        if training is None or not inputs:
            return inputs
        theirs = session.inputs_of(training.fetches, training.feed_dict or ())
        for op in inputs:
            if op in theirs and not session.may_share(op):
                raise ValueError(
                    f"metrics draw from the input {op.name!r}, and so does the training, which "
                    "would miss these elements: give feeds, or compute them from an input of their "
                    "own"
                )
        return inputs


def _check_no_step(graph: BaseGraph, fetches: Any) -> None:
    """Raise ValueError if ``fetches`` have a value only when a step of the training is made."""
    if graph.objects is None:
        return
    effects = graph.effects_of(fetches)
    if needed := effects.steps or effects.step_captures:
        name = min(op.name for op in needed)
        raise ValueError(
            f"metrics need {name!r}, a step or a value captured in one, and an evaluation must "
            "not train: compute them with a function of your own, rh.call(evaluate, ...)"
        )
