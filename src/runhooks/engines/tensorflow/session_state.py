"""``SessionState``: what session layers and hooks keep of a TensorFlow session beside its runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runhooks.engines.tensorflow import sources
from runhooks.engines.tensorflow.fetches import FetchPlan, make_plan
from runhooks.engines.tensorflow.graph import TensorFlowGraph
from runhooks.engines.tensorflow.hook_states import load_states, save_states, sweep_states
from runhooks.engines.tensorflow.run_options import merged_options
from runhooks.engines.tensorflow.savers import check_saver
from runhooks.engines.tensorflow.step_reads import UNCHANGED, StepChange

v1 = tf.compat.v1


class SessionState:
    """A part of a session: the global step on the host, and what sessions of runhooks have besides.

    A class that has it defines ``run_plainly``.
    """

    def __init__(self, graph: TensorFlowGraph) -> None:
        self.step_graph = graph
        self.engine = graph.engine
        #: How many sessions of a monitored session were lost before this one.
        self.recoveries = 0
        #: Made when the monitored session is to stop.
        self.stop_request: Any = None
        #: How many runs have ended well.
        self.runs = 0
        #: The seconds that were not training; whoever spends some adds them.
        self.time_apart = 0.0
        #: The path of the checkpoint that was restored or saved last, or None.
        self.checkpoint: str | None = None
        #: Whether it is closed or lost, so that nothing more can be read of it.
        self.is_over = False
        #: Whether others may change the variables, so that the step is fetched in every run. Not
        #: before all of them have values.
        self.is_shared = False
        self._step: int | None = None
        self._step_is_known = False
        self._attached: dict[str, Any] = {}
        self._loaded_states: dict[str, Any] = {}

    @property
    def global_step(self) -> int | None:
        """The global step as it was after the last run; None if there is none or it has no value.

        Read by a run of its own only where the last run could not tell, as after one that failed.
        """
        if not self._step_is_known and not self.is_over:
            self.refresh_step()
        return self._step

    def refresh_step(self) -> int | None:
        """Read the global step, which others may have changed, by a run of its own."""
        tensor = self.step_graph.step_reads.tensor
        if tensor is None or self.is_over:
            return self._step
        try:
            self.take_step([self.run_plainly(tensor)])
        except (tf.errors.OpError, RuntimeError):  # not initialised, lost or closed
            return self._step
        return self._step

    def take_step(self, values: Sequence[Any]) -> None:
        """Note the global step, the largest of ``values``."""
        self._step = int(values[0] if len(values) == 1 else max(values))
        self._step_is_known = True

    def forget_step(self) -> None:
        """Note that a run has changed the global step, maybe, and did not tell to what."""
        self._step_is_known = False

    def note_error(self, error: BaseException, changes_step: bool) -> None:
        """Note what a run has failed of; nobody is asked for the step of a lost session."""
        if changes_step:
            self._step_is_known = False
        if self.engine.is_lost(error):
            self.is_over = True

    def steps_to_fetch(self, change: StepChange | None) -> list[Any]:
        """What a run is to fetch besides, so that the global step is known after it."""
        if change is None or (change is not UNCHANGED and not change.is_known):
            return []
        if change.reads:
            return list(change.reads)
        tensor = self.step_graph.step_reads.tensor if self.is_shared else None
        return [] if tensor is None else [tensor]

    def run_plainly(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """One run, with nothing around it."""
        raise NotImplementedError

    def run_whole(
        self,
        fetches: Any,
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
        plan: FetchPlan | None = None,
    ) -> Any:
        """One run by ``run_plainly``, which takes all that ``Session.run`` takes."""
        plan = plan or make_plan(self.step_graph, fetches, ())
        steps = self.steps_to_fetch(plan.step)
        changes = plan.step is not UNCHANGED
        try:
            if steps:
                result, values = self.run_plainly(
                    [fetches, steps], feed_dict, options, run_metadata
                )
            else:
                result = self.run_plainly(fetches, feed_dict, options, run_metadata)
        except BaseException as error:
            self.note_error(error, changes)
            raise
        if steps:
            self.take_step(values)
        elif changes:
            self.forget_step()
        self.runs += 1
        return result

    def sources_of(self, fetches: Any, fed: Iterable[Any] = ()) -> list[Any]:
        """The iterators and queues that ``fetches`` draw from, if what is ``fed`` is fed."""
        return sources.sources_of(self.step_graph, fetches, fed)

    def serves_both(self, source: Any) -> bool:
        """Whether a training and its evaluation may draw from ``source``."""
        return not sources.is_one_dataset(source)

    def rewind(self, *found: Any) -> None:
        """Let sources, which ``sources_of`` has found, begin anew."""
        sources.begin_anew(self, found)

    def new_records(self) -> tuple[Any, Any]:
        """Empty run options and run metadata."""
        return v1.RunOptions(), v1.RunMetadata()

    def merge_options(self, given: Sequence[Any]) -> Any:
        """The run options of the caller and of hooks as one."""
        return merged_options(given)

    def save_with(
        self, saver: Any, save_path: str | os.PathLike[str], step: int, *, save_graph_def: bool
    ) -> str:
        """Let ``saver`` save this session; the path of the checkpoint.

        Raises TypeError for the saver of the other engines.
        """
        check_saver(saver)
        path = os.fspath(save_path)
        states = {name: dict(part.state_dict()) for name, part in self._attached.items()}
        save_states(f"{path}-{step}", {k: state for k, state in states.items() if state}, step)
        if isinstance(saver, v1.train.Saver):
            saved = saver.save(self, path, global_step=step, write_meta_graph=save_graph_def)
        else:
            saved = saver.save(self, path, global_step=step)
        sweep_states(path)
        self.checkpoint = str(saved)
        return self.checkpoint

    def take_states(self, path: str) -> None:
        """Take what hooks have kept with the checkpoint ``path``, which was restored, for them."""
        self.checkpoint = path
        self._loaded_states = load_states(path)

    def write_graph(self, writer: Any, folder: str | os.PathLike[str] | None) -> None:
        """Write the graph to an event file, and to ``graph.pbtxt`` in ``folder`` if given."""
        graph_def = self.step_graph.launched.as_graph_def(add_shapes=True)
        if folder is not None:
            tf.io.write_graph(graph_def, os.fspath(folder), "graph.pbtxt")
        writer.add_graph(graph_def=graph_def.SerializeToString())

    def attach(self, name: str, part: Any) -> None:
        """Save the state of ``part`` from now on, and give it the one that was restored, if any.

        Raises ValueError if ``name`` is taken.
        """
        if name in self._attached:
            raise ValueError(f"something is attached as {name!r} already: give it another name")
        self._attached[name] = part
        if name in self._loaded_states:
            part.load_state_dict(self._loaded_states[name])

    def detach(self, name: str) -> None:
        """Undo ``attach``."""
        self._attached.pop(name, None)

    def untaken(self) -> list[str]:
        """Names of states that were restored and belong to nothing here, sorted."""
        return sorted(self._loaded_states.keys() - self._attached.keys())

    def wait(self) -> None:
        """A run has ended when it returns."""
