"""``SessionState``: the base of the sessions of a ``tf.Graph``."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from runhooks.arrays.shards import Share
from runhooks.contract import PreparedRun, RawSession, Snapshot
from runhooks.engines.tensorflow.engine import ENGINE
from runhooks.engines.tensorflow.fetches import (
    UNCHANGED,
    AnalyzedGraph,
    StepChange,
    elements_of,
    make_plan,
    names_of,
    needed,
)
from runhooks.engines.tensorflow.files import (
    check_saver,
    load_states,
    respell_checkpoints,
    save_states,
    sweep_states,
    take_over_checkpoints,
)
from runhooks.graph.base import ClosedSessionError, Framework, StepPart
from runhooks.near_names import suggestion

v1 = tf.compat.v1


class _Own(threading.local):
    """What a thread knows of its last run."""

    step: int | None = None  # that it has led to, if known
    is_after_run = False  # while the thread hands out its results


def _unknown(name: str, known: Mapping[str, Any]) -> ValueError:
    return ValueError(f"no variable is named {name!r}{suggestion(name, known)}")


_SOURCES = {
    *("Iterator", "OneShotIterator", "IteratorFromStringHandle", "MultiDeviceIterator"),
    *("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"),
}


def _starts(source: Any) -> list[Any]:
    return [op for it in source.outputs for op in it.consumers() if _kind(op) == "MakeIterator"]


def _kind(operation: Any) -> str:
    return str(operation.type).removesuffix("V2")


_LARGEST = (
    *("trace_level", "timeout_in_ms", "inter_op_thread_pool", "output_partition_graphs"),
    "report_tensor_allocations_upon_oom",
)

_CLOSED = "Attempted to use a closed Session."


class CancelledRunError(ClosedSessionError, tf.errors.CancelledError):  # type: ignore[misc]
    """A run was cancelled because its session, ``owner``, was closed."""

    def __init__(self, error: Any, owner: object) -> None:
        tf.errors.CancelledError.__init__(self, error.node_def, error.op, error.message)
        self.owner = owner


class SessionState(RawSession):
    """A session of TensorFlow as hooks and session layers see it.

    ``is_over``: whether it is closed or lost. ``is_shared``: whether others may change variables,
    which all have values, so that every run fetches the step.
    """

    has_framework_saver: ClassVar[bool] = True
    makes_one_run_at_a_time: ClassVar[bool] = False  # one may wait for what another enqueues

    def __init__(self, graph: AnalyzedGraph) -> None:
        RawSession.__init__(self)
        self.analyzed_graph = graph
        self.is_over = False
        self.is_shared = False
        self._restored: str | None = None
        self._step: int | None = None
        self._step_is_known = False
        # Runs that may change the step are numbered: those of threads may overlap.
        self._lock = threading.Lock()
        self._saving = threading.Lock()  # a saver has one list of its checkpoints
        self._begun = self._in_flight = 0
        self._unordered = 0  # the last begun when the step was lost track of
        self._foreseen: PreparedRun | None = None
        self._own = _Own()

    @property
    def engine(self) -> Framework:
        return ENGINE

    @property
    def global_step(self) -> int | None:
        """Read by a run of its own where the last could not tell."""
        if self._own.is_after_run and self._own.step is not None:
            return self._own.step
        if not self._step_is_known and not self.is_over:
            self.refresh_step()
        return self._step

    @contextmanager
    def after_own_run(self) -> Iterator[None]:
        self._own.is_after_run = True
        try:
            yield
        finally:
            self._own.is_after_run = False

    def refresh_step(self) -> int | None:
        tensor = self.analyzed_graph.global_step
        if tensor is None or self.is_over:
            return self._step
        number, values = self.begin_change(), None
        try:
            values = [self.run_plainly(tensor)]
        except (tf.errors.OpError, RuntimeError):  # not initialized, lost or closed
            return self._step
        finally:
            self.end_change(number, values, self._foreseen, increases=True)
        return self._step

    def begin_change(self) -> int:
        """Return the number of a run that may change the global step; negative if others go on."""
        with self._lock:
            self._begun += 1
            self._in_flight += 1
            return self._begun if self._in_flight == 1 else -self._begun

    def end_change(
        self,
        number: int,
        values: Sequence[Any] | None,
        run: PreparedRun | None = None,
        *,
        increases: bool = False,
    ) -> None:
        """Note that ``run``, of this ``number``, has ended.

        The largest of ``values``, if any, is the new step; ``increases``: it never decreases.
        """
        with self._lock:
            self._in_flight -= 1
            step = self._own.step = int(max(values)) if values else None
            if number == self._begun:  # no other run has overlapped
                self._step_is_known = step is not None
                self._step = self._step if step is None else step
            elif step is not None and increases and abs(number) > self._unordered:
                is_new = not self._step_is_known or self._step is None or step > self._step
                self._step, self._step_is_known = (step if is_new else self._step), True
            else:
                self._unordered, self._step_is_known = self._begun, False
            if self._foreseen is not None and (self._foreseen is not run or step is None):
                self._foreseen.off_steps = 0

    def note_unchanged(self) -> int:
        """Note that a run begins whose hooks see the steps of other threads; return 0."""
        if not self._own.is_after_run:
            self._own.step = None
        return 0

    def forget_step(self) -> None:
        self.end_change(self.begin_change(), None)

    @contextmanager
    def made_partly(self) -> Iterator[None]:
        """Make part of a run, which may run more than it fetches."""
        try:
            yield
        except BaseException as error:
            self.note_error(error)
            raise
        finally:
            self.forget_step()
        self.runs += 1

    def foresee(self, run: PreparedRun, off_steps: float) -> None:
        """Set ``run.off_steps``, until another run may change the global step."""
        with self._lock:
            self._foreseen, run.off_steps = run, off_steps

    def note_error(self, error: BaseException) -> None:
        """Note the error of a run; raise ClosedSessionError if it comes of a closed session."""
        if self.engine.is_lost(error):
            self.is_over = True
        elif self.is_over and isinstance(error, tf.errors.CancelledError):
            raise CancelledRunError(error, self) from error
        elif type(error) is RuntimeError and str(error) == _CLOSED:
            raise ClosedSessionError(_CLOSED, self) from error

    def steps_to_fetch(self, change: StepChange | None, fed: Collection[str]) -> list[Any]:
        """Return what a run is to fetch for the global step."""
        if change is None:
            return []
        if change.reads:
            return list(change.reads)
        tensor = self.analyzed_graph.global_step if self.is_shared else None
        return [] if tensor is None or tensor.name in fed else [tensor]

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        """Make one run, with nothing around it."""
        raise NotImplementedError

    def run_whole(self, fetches: Any, *given: Any) -> Any:
        """Make one run, after which the global step is known."""
        feed_keys = tuple(given[0]) if given and isinstance(given[0], Mapping) else ()
        plan = make_plan(self.analyzed_graph, fetches, feed_keys)
        fed = () if plan.step is None else names_of(self.analyzed_graph, feed_keys)
        steps = self.steps_to_fetch(plan.step, fed)
        is_told = self.is_shared or plan.step is not UNCHANGED
        number = self.begin_change() if is_told else self.note_unchanged()
        values: Any = None
        try:
            if steps:
                result, values = self.run_plainly([fetches, steps], *given)
            else:
                result = self.run_plainly(fetches, *given)
        except BaseException as error:
            self.note_error(error)
            raise
        finally:
            if number:
                self.end_change(number, values, increases=plan.never_decreases)
        self.runs += 1
        return result

    def inputs_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Any]:
        try:
            elements = elements_of(self.analyzed_graph, fetches)
            fed = names_of(self.analyzed_graph, feed_keys)
        except (TypeError, ValueError, KeyError):  # the run says what is wrong
            return []
        return [op for op in needed(elements, fed) if _kind(op) in _SOURCES]

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        # Other workers may increase it in any run.
        if self.is_shared or not self.analyzed_graph.increases_step:
            return StepPart.WHOLE
        plan = make_plan(self.analyzed_graph, fetches, tuple(feed_keys))
        return StepPart.NONE if plan.step == UNCHANGED else StepPart.WHOLE

    def may_share(self, source: Any) -> bool:
        # An iterator of one dataset for good is bound.
        return _kind(source) not in ("Iterator", "OneShotIterator") or len(_starts(source)) > 1

    def rewind(self, *fetches: Any, to: Any = None) -> None:
        alone = [starts[0] for source in fetches if len(starts := _starts(source)) == 1]
        unfed = [it for it in alone if "Placeholder" not in map(_kind, needed([it]))]
        if unfed:
            self.run(unfed)

    def snapshot(
        self,
        into: Mapping[str, np.ndarray[Any, Any]] | None = None,
        share: Share | None = None,
    ) -> Snapshot:
        return Snapshot(self._values(self._variables()), {})

    def read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """As ``RawSession.read``; makes a run."""
        known, below = self._variables(), f"{name}/"
        found = {key: it for key, it in known.items() if key == name or key.startswith(below)}
        if not found:
            raise _unknown(name, known)
        return self._values(found)

    def assign(self, values: Mapping[str, Any]) -> None:
        """As ``RawSession.assign``; runs the initializers, with other values."""
        known = self._variables()
        if unknown := [name for name in values if name not in known]:
            raise _unknown(unknown[0], known)
        initializers = {name: known[name].initializer for name in values}
        feeds = {initializers[name].inputs[1]: value for name, value in values.items()}
        self.run_plainly(list(initializers.values()), feeds)
        self.changes += 1
        self.forget_step()

    def _values(self, variables: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        values = self.run_plainly(list(variables.values()))
        return {name: np.asarray(value) for name, value in zip(variables, values, strict=True)}

    def _variables(self) -> dict[str, Any]:
        with self.graph.as_default():
            return {variable.op.name: variable for variable in v1.global_variables()}

    def new_records(self) -> tuple[Any, Any]:
        return v1.RunOptions(), v1.RunMetadata()

    def merge_options(self, given: Mapping[str, Any]) -> Any:
        """Merge ``RunOptions``: the largest of numbers and flags, and all debug watches."""
        first, *others = given.values()
        merged = v1.RunOptions()
        merged.CopyFrom(first)
        for options in others:
            for name in _LARGEST:
                setattr(merged, name, max(getattr(merged, name), getattr(options, name)))
            debug, other = merged.debug_options, options.debug_options
            debug.debug_tensor_watch_opts.extend(other.debug_tensor_watch_opts)
            debug.reset_disk_byte_usage |= other.reset_disk_byte_usage
        return merged

    def save_checkpoint(
        self, saver: Any, save_path: str | os.PathLike[str], step: int, *, save_graph_def: bool
    ) -> str:
        check_saver(saver)
        path = os.fspath(save_path)
        # Without a default graph, as in a thread, a saver would think itself eager.
        with self._saving, self.graph.as_default():
            options = {}
            if isinstance(saver, v1.train.Saver):
                take_over_checkpoints(saver, path, self._restored)
                options = {"write_meta_graph": save_graph_def}
            respell_checkpoints(saver, os.path.dirname(path))  # noqa: PTH120 - it may be a URL
            save_states(f"{path}-{step}", self.attached_states(), step)
            saved = saver.save(self, path, global_step=step, **options)
            sweep_states(path)
            self.checkpoint = str(saved)
        return self.checkpoint

    def take_checkpoint(self, path: str) -> None:
        """Take the hooks' states of the restored checkpoint ``path``."""
        self.checkpoint = self._restored = path
        self.take_states(load_states(path))

    def write_graph(self, folder: str | os.PathLike[str]) -> None:
        graph_def = self.analyzed_graph.launched.as_graph_def(add_shapes=True)
        tf.io.write_graph(graph_def, os.fspath(folder), "graph.pbtxt")
