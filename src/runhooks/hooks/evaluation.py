"""``EvaluationHook``: evaluates in the middle of the training, with the variables it trains."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook
from runhooks.engines.foreign import graph_of, session_of
from runhooks.graph import GraphKeys, Tensor, get_default_graph
from runhooks.graph.base import UNKNOWN, BaseGraph
from runhooks.graph.build import checked_source
from runhooks.graph.graph import own_graph
from runhooks.graph.step import EvaluatedStep
from runhooks.hooks.base import NamedTensors, SummaryWriter, step_of
from runhooks.hooks.ema import EmaHook
from runhooks.hooks.metrics import EvaluatingHook, number
from runhooks.hooks.summary_saver import summaries_of
from runhooks.ranks import current_group
from runhooks.session.hook_list import LoopStoppedError, NestedLoop, until_stop
from runhooks.trigger import Trigger, timer_of

FeedDict = Mapping[Any, Any]

_WEIGHT, _SUM_OF = "weight", "sum of "


class Means:
    """The weighted mean of each value that ``is_metric``.

    A value is read when the next one arrives: the device computes that one meanwhile.
    """

    def __init__(self, is_metric: Callable[[Any], bool]) -> None:
        self._is_metric = is_metric
        self._sums: dict[str, float] | None = None
        self._weight = 0.0
        self._unread: tuple[Mapping[str, Any], Any] | None = None

    def add(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Add the values of one run; raise ValueError or TypeError for one that is no number."""
        self._read()
        if self._sums is None:
            self._sums = {label: 0.0 for label, it in values.items() if self._is_metric(it)}
        self._unread = values, weight

    def means(self, add: Callable[[Mapping[str, float]], Mapping[str, float]]) -> dict[str, float]:
        """Return the means by label, over what ``add`` makes of the sums of this rank."""
        self._read()
        named = {f"{_SUM_OF}{label}": it for label, it in (self._sums or {}).items()}
        totals = dict(add({_WEIGHT: self._weight, **named}))
        weight = totals.pop(_WEIGHT)
        if not weight:
            raise ValueError("weight was 0 in all runs: there is nothing to take the mean of")
        return {name.removeprefix(_SUM_OF): total / weight for name, total in totals.items()}

    def _read(self) -> None:
        if self._unread is None:
            return
        (values, given), self._unread = self._unread, None
        assert self._sums is not None, "it was made with the first values"
        weight = number("weight", given)
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight!r}")
        if weight:  # the mean of a batch without examples is NaN
            self._weight += weight
            for label in self._sums:
                self._sums[label] += weight * number(label, values[label])


class Streamed(NamedTuple):
    value: Any
    update: Any
    resets: list[Any]


class EvaluationHook(EvaluatingHook):
    """Evaluates during training: calls a test step with test data, and writes the mean metrics.

    ``docs/evaluation.md`` says what the test step gets and what becomes of its results. At the end,
    it evaluates only with ``Trigger(at_end=True)``. The session's other hooks are not called in an
    evaluation.

        test = rh.EvaluationHook(test_step, test_loader, every_n_epochs=1, output_dir="runs/a/test")
        hooks = [test, rh.stop_if_no_increase_hook(test.metric("accuracy"), patience=5)]

    Args:
        test_step: The function; or a dict of tensors or their names, by the tag to write them
            under, each a single number per run. On a ``tf.Graph``, also pairs of ``tf.metrics``,
            ``(value, update_op)``, whose local variables are reset before each evaluation.
        data: What ``test_step`` is called with, as for ``rh.graph``: a loader, a list, or a
            function of the step that returns one. For a dict of tensors: an iterable of the
            feed_dicts of an evaluation. None: the inputs of these tensors start over in each
            evaluation, which ends when the first of them does; without inputs, it is one run, or
            ``steps`` runs. On a ``tf.Graph``, an input is the iterator of one dataset; one of
            ``hooks`` has to reset anything else.
        every_n_epochs: Evaluate at the last step of every so many epochs.
        every_n_steps: Evaluate at the multiples of this number.
        trigger: When to evaluate.
        outputs: Names for what ``test_step`` returns without names.
        steps: The maximum number of runs of an evaluation.
        summary_op: A summary or a list of these, computed with the first batch of an evaluation;
            or a function that takes the hook and returns them.
        averages: Evaluate with the moving averages of this ``EmaHook`` of the same session.
        weight: A tensor or its name: the weight of a run in the means. None: the number of
            examples in its batch, or for a dict of tensors 1.
        hooks: Called in the runs of an evaluation, which is a session for them. If one asks to
            stop, the evaluation ends, and the training continues.
        output_dir: Where to write, without a ``summary_writer``. With neither, it only logs.
        summary_writer: The writer.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: Unless exactly one cadence is given. In ``begin``: if nothing is left for a
            parameter of the test step, or metrics need a training step of ``rh.torch``. In
            ``begin`` or the first evaluation: if another hook acts on a metric that there is not.
            In an evaluation: if it draws from an input of the training or changes a saved variable
            (a change in place, as in PyTorch, is not noticed), or if metrics of a dict are not
            single numbers. In a step: if it is to fetch an output of the test step.
        TypeError: If ``test_step`` is neither a function nor a dict; in ``begin``, if a metric of
            the dict has no value.
        RuntimeError: In an evaluation: if the data are empty.
    """

    def __init__(
        self,
        test_step: Callable[..., Any] | Mapping[str, Tensor | str],
        data: Iterable[Any] | Callable[..., Iterable[Any]] | None = None,
        every_n_epochs: float | None = None,
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
        outputs: Sequence[str] = (),
        steps: int | None = None,
        summary_op: Any = None,
        averages: EmaHook | None = None,
        weight: Tensor | str | None = None,
        hooks: Iterable[SessionRunHook] = (),
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        hook_name: str | None = None,
    ) -> None:
        _check_what(test_step, data, outputs)
        arguments.whole(steps=steps)
        timer = timer_of(trigger, every_n_epochs=every_n_epochs, every_n_steps=every_n_steps)
        super().__init__(timer, output_dir, summary_writer, hook_name)
        self._test_step = None if isinstance(test_step, Mapping) else test_step
        self._metrics = dict(sorted(test_step.items())) if isinstance(test_step, Mapping) else {}
        self._streamed: dict[str, Streamed] = {}
        if self._metrics:
            self._know(self._metrics)
        self._data = data
        self._outputs = outputs
        self._evaluated: EvaluatedStep | None = None
        self._graph: BaseGraph | None = None  # that of the next two
        self._summary_op = summary_op
        self._shown: list[Any] | None = None
        arguments.instance(EmaHook, averages=averages)
        self._averages = averages
        self._steps = steps
        self._weight = weight
        self._loop = NestedLoop(hooks)
        self._inputs: list[Any] = []
        self._before: Any = None

    def __getitem__(self, output: str) -> Tensor:
        """Return the tensor of an output of the test step; TypeError if there is no test step."""
        if self._test_step is None:
            raise TypeError("only an EvaluationHook of a test step has outputs, not one of tensors")
        return self._added().result[output]

    def begin(self) -> None:
        super().begin()
        graph = get_default_graph()
        self._enter(graph)
        if self._test_step is None:
            self._know(self._metrics)
            single, self._streamed = _split(graph, self._metrics)
            self._fetches: list[Any] = [NamedTensors(single).fetches()]
        else:
            added = self._added()
            form = graph.form_of(added.result) if self._wanted else UNKNOWN
            if form is not UNKNOWN:
                self._know([name for name, it in form.items() if _is_number(it)])
            self._fetches = [added.result, added.examples]
        if self._weight is not None:
            self._fetches[1:] = [graph.as_graph_element(self._weight)]
        self._updates = [it.update for it in self._streamed.values()]
        if graph.objects is not None:
            effects = graph.effects_of(self._fetches)
            if needed := effects.steps or effects.step_captures:
                name = min(op.name for op in needed)
                raise ValueError(
                    f"metrics need {name!r}, of a step, and an evaluation must not train: compute "
                    "them with a function of your own, rh.call(evaluate, ...)"
                )
        if self._shown is None:
            made = self._summary_op(self) if callable(self._summary_op) else self._summary_op
            self._shown = summaries_of(graph, made)
        self._summaries = self._shown
        self._loop.begin()

    def _added(self) -> EvaluatedStep:
        graph = own_graph()
        self._enter(graph)
        if self._evaluated is None:
            assert self._test_step is not None, "only of a test step"
            assert self._data is not None, "it was checked"
            step, data, outputs = self._test_step, self._data, tuple(self._outputs)
            # A hook of another session may differ in its directory alone. What is kept holds data.
            self._evaluated = graph.added.get_or_make(
                ("test_step", step, id(data), outputs),
                lambda: EvaluatedStep(graph, step, data, outputs),
            )
        return self._evaluated

    def _enter(self, graph: BaseGraph) -> None:
        if self._graph is not graph:
            self._graph, self._evaluated, self._shown = graph, None, None

    def _run_evaluation(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> tuple[dict[str, float], int]:
        if self._averages is None:
            return self._evaluate_parameters(session, training)
        with self._averages.substituted(session):
            return self._evaluate_parameters(session, training)

    def _evaluate_parameters(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> tuple[dict[str, float], int]:
        means = Means(_is_number if self._test_step is not None else lambda value: True)
        shown: list[Any] = []  # an evaluation that a stop ends writes nothing: it is repeated
        feeds = until_stop(session, self._feeds(session, training), is_at_end=training is None)

        def take(results: list[Any]) -> None:
            metrics, (_, *summaries) = results[: len(self._fetches)], results[len(self._fetches) :]
            shown.extend(chain(*summaries))
            means.add(*metrics)

        each = [*self._fetches, self._updates]
        first = [[*each, self._summaries]] if self._summaries else []
        resets = [op for it in self._streamed.values() for op in it.resets]
        if resets:
            session.run(resets)
        try:
            runs = self._loop.run(session, chain(first, repeat(each)), feeds, take)
        except LoopStoppedError:
            session.rewind(*self._inputs, to=self._before)  # a checkpoint is to hold nothing of it
            raise
        if not runs:
            raise RuntimeError(
                "the evaluation made no run: its data or inputs gave nothing. A generator or "
                "iterator serves only the first evaluation: give a list or a loader"
            )
        add: Callable[[Mapping[str, float]], Mapping[str, float]] = dict
        if not session_of(session).engine.runs_one_program and self.runs_on != "chief":
            # At the end, ranks whose data differ in length are at different steps.
            place = "between runs" if training is None else f"at step {step_of(session)}"
            add = partial(current_group().total, f"the metrics of {self.title}", at=place)
        found = means.means(add)
        if self._streamed:
            values = session.run({name: it.value for name, it in self._streamed.items()})
            found |= {name: number(name, it) for name, it in values.items()}
            found = {name: found[name] for name in self._metrics}
        for summary in shown:
            self._output.add_summary(summary, step_of(session))
        return found, runs

    def _feeds(
        self, session: RawSession, training: SessionRunArgs | None
    ) -> Iterator[FeedDict | None]:
        is_fed = self._test_step is None and self._data is not None
        feeds: Any = repeat(None)
        if is_fed:
            feeds = self._data(step_of(session)) if callable(self._data) else self._data
            if not isinstance(feeds, Iterable):
                raise TypeError(
                    f"data must be, or return, an iterable of feed_dicts, got {feeds!r}"
                )
        for index, feed_dict in enumerate(islice(feeds, self._steps)):
            if index == 0:
                inputs = self._inputs = self._own_inputs(session, feed_dict, training)
                if inputs:
                    self._before = session.rewind(*inputs)
                elif not is_fed and self._steps is None:
                    yield None
                    return
            yield feed_dict

    def _own_inputs(
        self, session: RawSession, feed_dict: FeedDict | None, training: SessionRunArgs | None
    ) -> list[Any]:
        """Return the inputs; ValueError for one of ``training``, or if a saved variable changes."""
        graph, feeds = graph_of(session.graph), feed_dict or ()
        saved = set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
        asked = [*self._fetches, self._updates, self._summaries]
        for op in graph.effects_of(asked, feeds).assignments:
            if op.assigns in saved:
                raise ValueError(
                    f"metrics change the variable {op.assigns.op.name!r} of the training: an "
                    "evaluation may change local variables alone"
                )
        inputs = session.inputs_of(asked, feeds)
        theirs = []
        if training is not None and inputs:
            theirs = session.inputs_of(training.fetches, training.feed_dict or ())
        for op in inputs:
            if op in theirs and not session.may_share(op):
                raise ValueError(
                    f"metrics draw from the input {op.name!r}, and so does the training: give "
                    "data, or compute them from an input of their own"
                )
        return inputs


def _check_what(test_step: Any, data: Any, outputs: Any) -> None:
    if isinstance(test_step, Mapping):
        if not test_step or not all(isinstance(label, str) for label in test_step):
            raise ValueError(
                f"test_step must be a function, or one tensor or more, each by a str, got "
                f"{test_step!r}"
            )
        return
    if not callable(test_step):
        raise TypeError(
            "test_step must be a function, or a dict of tensors by name, such as "
            f'{{"accuracy": tensor["accuracy"]}}, got {test_step!r}'
        )
    arguments.given(data=data)
    checked_source("data", data, 1)
    if isinstance(data, Iterator):
        raise TypeError(
            f"data must be iterable again, got the iterator {data!r}: give a list, a loader, or a "
            "function of the step that returns one"
        )
    if isinstance(outputs, str):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')


def _split(
    graph: BaseGraph, metrics: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Streamed]]:
    single, streamed = {}, {}
    for name, metric in metrics.items():
        try:
            if isinstance(metric, tuple | list) and len(metric) == 2:
                value, update = map(graph.as_graph_element, metric)
                streamed[name] = Streamed(value, update, graph.resets_of(value, update))
            else:
                single[name] = graph.as_graph_element(metric)
        except TypeError:
            raise TypeError(
                f"the metric {name!r} must be a tensor, its name, or on a tf.Graph a pair of "
                f"tf.metrics, (value, update_op), got {metric!r}"
            ) from None
    return single, streamed


def _is_number(value: Any) -> bool:
    shape = getattr(value, "shape", ())
    return not isinstance(value, str | Mapping | list | tuple) and math.prod(shape) == 1
