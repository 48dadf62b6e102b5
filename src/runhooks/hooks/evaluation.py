"""``EvaluationHook``: evaluates in the middle of the training, with the variables it trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook
from runhooks.engines.foreign import graph_of
from runhooks.graph import Tensor, get_default_graph
from runhooks.hooks.ema import EmaHook
from runhooks.hooks.helpers.base import SummaryWriter
from runhooks.hooks.helpers.evaluations import (
    EvaluatingHook,
    Evaluation,
    EvaluationMetric,
    EvaluationResults,
    Means,
)
from runhooks.hooks.helpers.named_tensors import NamedTensors, check_no_step, evaluation_inputs
from runhooks.near_names import suggestion
from runhooks.session.nested import NestedLoop, until_stop
from runhooks.trigger import Trigger, timer_of

FeedDict = Mapping[Any, Any]


class EvaluationHook(EvaluatingHook):
    """Evaluates during training: computes the means of ``metrics`` over some runs, and writes them.

    It evaluates the state after a step before any other hook acts on that step, whatever the order
    of the hooks, so ``stop_if_no_decrease_hook`` and checkpoints use the metrics of the same step.
    A resumed run evaluates at the same steps as an uninterrupted one, and repeats an evaluation
    that a stop has cut off. It evaluates at the end only with ``Trigger(at_end=True)``, because a
    preempted run must save before it is killed.

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
        super().__init__(
            timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs),
            EvaluationResults(output_dir, summary_writer),
        )
        self._metrics = NamedTensors(metrics)
        self._given_feeds = feeds
        arguments.instance(EmaHook, averages=averages)
        self._averages = averages
        self._steps = steps
        self._weight = weight
        self._loop = NestedLoop(hooks)
        self._output_dir = output_dir
        self.hook_name = hook_name

    def metric(self, name: str) -> EvaluationMetric:
        """As ``EvaluatingHook.metric``; raise ValueError if it has no metric of that name."""
        found = super().metric(name)
        if name not in self._metrics.by_key:
            known = list(self._metrics.by_key)
            raise ValueError(
                f"there is no metric {name!r} in {found.place}{suggestion(name, known)}: there are "
                f"{known}"
            )
        return found

    def eval_dir(self) -> str:
        """Return the directory it writes to.

        Raises:
            ValueError: If it was given no ``output_dir``.
        """
        if self._output_dir is None:
            raise ValueError("this EvaluationHook has no output_dir: give it one to read from")
        return str(self._output_dir)

    def begin(self) -> None:
        super().begin()
        self._fetches: list[Any] = [self._metrics.fetches()]
        if self._weight is not None:
            self._fetches.append(get_default_graph().as_graph_element(self._weight))
        check_no_step(get_default_graph(), self._fetches)
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
        for number, feed_dict in enumerate(islice(feeds, self._steps)):
            if number == 0:
                graph = graph_of(session.graph)
                inputs = evaluation_inputs(session, graph, self._fetches, feed_dict, training)
                if inputs:
                    session.rewind(*inputs)
                elif self._given_feeds is None and self._steps is None:
                    yield None
                    return
            yield feed_dict
