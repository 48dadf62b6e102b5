"""``TensorFlowOpener``: how the sessions of a ``tf.Graph`` are created, with default scaffolds."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.distribute_coordinator_context import get_current_worker_context
from tensorflow.python.ops import resources

from runhooks.engines.tensorflow.fetches import StepGraph
from runhooks.engines.tensorflow.files import check_saver, check_scheme
from runhooks.engines.tensorflow.session import AdoptedSession, Session
from runhooks.engines.tensorflow.session_manager import SessionManager
from runhooks.errors import FailedPreconditionError
from runhooks.graph.base import Place, Role, SessionOpener, role_alone

v1 = tf.compat.v1


def fill(scaffold: Any, graph: StepGraph) -> None:
    """Fill in what ``scaffold`` lacks, from the collections of ``graph`` or newly made."""
    keys = v1.GraphKeys
    with graph.launched.as_default():
        for name, key, make in (
            ("init_op", keys.INIT_OP, _init_op),
            ("ready_op", keys.READY_OP, _ready_op),
            ("ready_for_local_init_op", keys.READY_FOR_LOCAL_INIT_OP, _ready_for_local_init_op),
            ("local_init_op", keys.LOCAL_INIT_OP, default_local_init_op),
            ("summary_op", keys.SUMMARY_OP, v1.summary.merge_all),
            ("saver", keys.SAVERS, _saver),
        ):
            if getattr(scaffold, name) is None:
                setattr(scaffold, name, scaffold.get_or_default(name, key, make))
        scaffold.saver = _built(scaffold.saver)
    graph.step_reads.prepare()


def default_local_init_op() -> Any:
    """Return an operation that initializes local variables, tables and local resources."""
    return tf.group(
        v1.local_variables_initializer(),
        v1.tables_initializer(),
        resources.initialize_resources(resources.local_resources()),
    )


def _init_op() -> Any:
    return tf.group(
        v1.global_variables_initializer(),
        resources.initialize_resources(resources.shared_resources()),
        v1.get_collection("saved_model_initializers"),
    )


def _ready_op() -> Any:
    return tf.concat(
        [v1.report_uninitialized_variables(), resources.report_uninitialized_resources()], 0
    )


def _ready_for_local_init_op() -> Any:
    return tf.concat(
        [
            v1.report_uninitialized_variables(v1.global_variables()),
            resources.report_uninitialized_resources(resources.shared_resources()),
        ],
        0,
    )


def _saver() -> Any:
    return v1.train.Saver(sharded=True, allow_empty=True)


def _built(saver: Any) -> Any:
    if isinstance(saver, tf.train.Checkpoint):
        from tensorflow.python.checkpoint.graph_view import ObjectGraphView

        return v1.train.Saver(
            var_list=ObjectGraphView(saver).frozen_saveable_objects(), sharded=True
        )
    check_saver(saver)
    build = getattr(saver, "build", None)
    if build is not None:
        build()
    return saver


class TensorFlowOpener(SessionOpener):
    """Creates the sessions of one graph with ``SessionManager``."""

    scaffolds = (v1.train.Scaffold,)
    joins_ranks = False
    writes_checkpoints = False

    def __init__(self, graph: StepGraph) -> None:
        self._graph = graph

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        check_scheme(place)
        return place

    def role(self, master: str, is_chief: bool, config: Any) -> Role:
        return current_role(master, is_chief, config)

    def fill_scaffold(self, scaffold: Any) -> None:
        fill(scaffold, self._graph)

    def default_local_init_op(self) -> Any:
        return default_local_init_op()

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        return self._manager(scaffold).prepare_session(
            master,
            saver=scaffold.saver,
            checkpoint_dir=_text(checkpoint_dir),
            checkpoint_filename_with_path=_text(path),
            config=config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=_init_fn(scaffold),
        )

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        session, missing = self._manager(scaffold).look_for_session(master, config)
        return session, None if missing is None else FailedPreconditionError(missing)

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        error: Exception = tf.errors.DeadlineExceededError(None, None, message)
        return error

    def prepare_graph(self) -> None:
        # A creator of the user's own may never ask to fill a scaffold.
        self._graph.step_reads.prepare()

    def as_raw_session(self, session: Any) -> Any:
        if isinstance(session, Session):
            session.begin()
            return session
        return AdoptedSession(session)

    def start_threads(self, session: Any, coord: Any) -> None:
        for runner in self._graph.launched.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _manager(self, scaffold: Any) -> SessionManager:
        return SessionManager(
            local_init_op=scaffold.local_init_op,
            local_init_feed_dict=scaffold.local_init_feed_dict,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=self._graph.launched,
        )


def _init_fn(scaffold: Any) -> Callable[[Any], Any] | None:
    """Return what initializes a session after its ``init_op``: ``init_from``, then ``init_fn``."""
    init_from = getattr(scaffold, "init_from", None)  # TensorFlow's own scaffold has none
    if init_from is None:
        init_fn: Callable[[Any], Any] | None = scaffold.init_fn
        return init_fn

    def initialize(session: Any) -> None:
        init_from.load_into(session)
        if scaffold.init_fn is not None:
            scaffold.init_fn(session)

    return initialize


def _text(place: Place) -> str | None:
    return None if place is None else os.fspath(place)


#: Strategies that save with operations in which every worker takes part.
_COLLECTIVE = {
    *("CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1"),
    "MultiWorkerMirroredStrategy",
}


def current_role(master: str, is_chief: bool, config: Any) -> Role:
    """Return the role in the worker context of this thread; without one, what the program says."""
    context = get_current_worker_context()
    if not context:
        return role_alone(master, is_chief, config)
    strategy = getattr(context, "_strategy", None)
    # Collective operations need every process, so one that need not write writes to a spare folder.
    spare = None
    if in_step := type(strategy).__name__ in _COLLECTIVE:
        spare = f"tmp_{context.task_type}_{context.task_id}" if context.task_type else "tmp"
    return Role(
        master=context.master_target,
        config=_merged(config, context.session_config),
        is_chief=not strategy or context.experimental_should_init,
        has_chief_hooks=context.is_chief,
        summaries="" if context.should_save_summary else spare,
        checkpoints="" if context.should_checkpoint else spare,
        in_step=in_step,
    )


def _merged(config: Any, of_context: Any) -> Any:
    if config is None or of_context is None:
        return of_context if config is None else config
    merged = copy.deepcopy(config)
    merged.MergeFrom(of_context)
    return merged
