"""``TensorFlowLauncher``: how session layers create sessions of a ``tf.Graph``."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from runhooks.engines.role import Role
from runhooks.engines.tensorflow import scaffolding
from runhooks.engines.tensorflow.adopted import AdoptedSession
from runhooks.engines.tensorflow.graph import TensorFlowGraph
from runhooks.engines.tensorflow.role import current_role
from runhooks.engines.tensorflow.session_manager import SessionManager
from runhooks.errors import FailedPreconditionError

v1 = tf.compat.v1

Place = str | os.PathLike[str] | None


class TensorFlowLauncher:
    """As ``runhooks.session.launcher.Launcher``, of one graph."""

    scaffolds: tuple[type, ...] = (v1.train.Scaffold,)

    def __init__(self, graph: TensorFlowGraph) -> None:
        self._graph = graph

    def check_target(self, master: str, config: Any) -> None:
        """Nothing: there are servers to connect to."""

    def role(self, master: str, is_chief: bool, config: Any) -> Role:
        """What the distribute coordinator has made of this process, or what the program says."""
        return current_role(master, is_chief, config)

    def fill(self, scaffold: Any) -> None:
        """Give ``scaffold`` TensorFlow's defaults for what it lacks."""
        scaffolding.fill(scaffold, self._graph)

    def default_local_init_op(self) -> Any:
        """What a scaffold runs in every session by default."""
        return scaffolding.default_local_init_op()

    def prepare(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        """A session of a chief: restored, or else initialised, and ready."""
        return self._manager(scaffold).prepare_session(
            master,
            saver=scaffold.saver,
            checkpoint_dir=_text(checkpoint_dir),
            checkpoint_filename_with_path=_text(path),
            config=config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )

    def look(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, FailedPreconditionError | None]:
        """A session of a worker, which a chief has made ready; None and what is lacking yet."""
        session, lacking = self._manager(scaffold).look_for_session(master, config)
        return session, None if lacking is None else FailedPreconditionError(lacking)

    def too_late(self, message: str, checkpoint_dir: Place) -> Exception:
        """The error of a worker that has waited too long."""
        error: Exception = tf.errors.DeadlineExceededError(None, None, message)
        return error

    def prepare_graph(self) -> None:
        """Add reads of the global step, for creators that never ask to ``fill`` a scaffold."""
        self._graph.step_reads.prepare()

    def adopt(self, session: Any) -> Any:
        """``session``, made by a creator of the user's own, as session layers need it."""
        if not hasattr(session, "attach"):
            return AdoptedSession(session)
        session.begin()
        return session

    def start_threads(self, session: Any, coord: Any) -> None:
        """Start the queue runners of the graph under ``coord``."""
        for runner in self._graph.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _manager(self, scaffold: Any) -> SessionManager:
        return SessionManager(
            local_init_op=scaffold.local_init_op,
            local_init_feed_dict=scaffold.local_init_feed_dict,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=self._graph.launched,
        )


def _text(place: Place) -> str | None:
    return None if place is None else os.fspath(place)
