"""``Launcher``: how sessions of a graph are created, whatever computes it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

from runhooks.checkpoint import Saver, latest_checkpoint, restore_latest
from runhooks.engines.role import Role, alone
from runhooks.errors import DeadlineExceededError, FailedPreconditionError
from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import get_default_graph
from runhooks.session.session import Session
from runhooks.summary import merge_all

if TYPE_CHECKING:
    from runhooks.session.scaffold import Scaffold

_log = logging.getLogger("runhooks")

Place = str | os.PathLike[str] | None


class Launcher(Protocol):
    """What creators, scaffolds and monitored sessions leave to the kind of a graph."""

    #: The scaffolds of a framework's own that creators take as well.
    scaffolds: tuple[type, ...]

    def check_target(self, master: str, config: Any) -> None:
        """Raise ValueError if sessions of this graph have no ``master`` or ``config``."""
        ...

    def role(self, master: str, is_chief: bool, config: Any) -> Role:
        """What this process does: as the program says, unless a coordinator has decided it."""
        ...

    def fill(self, scaffold: Scaffold) -> None:
        """Give ``scaffold`` what it lacks; the graph may be added to for the last time."""
        ...

    def default_local_init_op(self) -> Any:
        """What is run in every session unless the scaffold says otherwise; None: nothing."""
        ...

    def prepare(
        self, scaffold: Scaffold, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        """A session of a chief: restored, or else initialised, and ready."""
        ...

    def look(
        self, scaffold: Scaffold, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, FailedPreconditionError | None]:
        """A session of a worker, if its chief has come so far; else None, and what is lacking."""
        ...

    def too_late(self, message: str, checkpoint_dir: Place) -> Exception:
        """The error of a worker that has waited too long."""
        ...

    def prepare_graph(self) -> None:
        """Add what sessions need to a graph that is not final yet."""
        ...

    def adopt(self, session: Any) -> Any:
        """``session``, from a creator of the user's own, as session layers need it."""
        ...

    def start_threads(self, session: Any, coord: Any) -> None:
        """Start the threads that the graph asks for, under ``coord``."""
        ...


class OwnLauncher:
    """For graphs that runhooks computes."""

    scaffolds: tuple[type, ...] = ()

    def check_target(self, master: str, config: Any) -> None:
        if master:
            raise ValueError(
                f"master must be left out, got {master!r}: this engine computes in this process, "
                "and has no session server to connect to"
            )
        if config is not None:
            raise ValueError(
                f"config must be left out, got {config!r}: it configures TensorFlow's sessions; "
                "configure the engine's framework itself"
            )

    def role(self, master: str, is_chief: bool, config: Any) -> Role:
        return alone(master, is_chief, config)

    def fill(self, scaffold: Scaffold) -> None:
        for name, key in (
            ("init_op", GraphKeys.INIT_OP),
            ("ready_op", GraphKeys.READY_OP),
            ("ready_for_local_init_op", GraphKeys.READY_FOR_LOCAL_INIT_OP),
            ("local_init_op", GraphKeys.LOCAL_INIT_OP),
        ):
            if getattr(scaffold, name) is None:
                setattr(scaffold, name, scaffold.get_or_default(name, key, _nothing))
        if scaffold.summary_op is None:
            summary_op = scaffold.get_or_default("summary_op", GraphKeys.SUMMARY_OP, _merged)
            # What cannot be merged any more can still be saved one by one.
            summaries = get_default_graph().get_collection(GraphKeys.SUMMARIES) or None
            scaffold.summary_op = summaries if summary_op is None else summary_op
        if scaffold.saver is None:
            saver = scaffold.get_or_default("saver", GraphKeys.SAVERS, _nothing)
            scaffold.saver = Saver() if saver is None else saver

    def default_local_init_op(self) -> Any:
        return None

    def prepare(
        self, scaffold: Scaffold, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        session = Session()
        restored = _restore(scaffold, session, checkpoint_dir, path)
        if restored is None:
            scaffold.initialise(session)
        else:
            _log.info("resumed from step %s: %s", session.global_step, restored)
        try:
            scaffold.make_ready(session)
        except FailedPreconditionError:
            session.close()  # a worker makes another, and the device may not hold both
            raise
        return session

    def look(
        self, scaffold: Scaffold, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, FailedPreconditionError | None]:
        if checkpoint_dir and latest_checkpoint(checkpoint_dir) is None:
            return None, FailedPreconditionError("it has saved no checkpoint there yet")
        try:
            return self.prepare(scaffold, master, config, checkpoint_dir, None), None
        except FailedPreconditionError as lacking:
            return None, lacking

    def too_late(self, message: str, checkpoint_dir: Place) -> Exception:
        path = None if not checkpoint_dir else str(checkpoint_dir)
        return DeadlineExceededError(message, path=path)

    def prepare_graph(self) -> None:
        """Add nothing."""

    def adopt(self, session: Any) -> Any:
        return session

    def start_threads(self, session: Any, coord: Any) -> None:
        """None: a graph of ours asks for none."""


def _nothing() -> None:
    return None


def _merged() -> Any:
    return None if get_default_graph().finalized else merge_all()


def _restore(scaffold: Scaffold, session: Session, checkpoint_dir: Place, path: Place) -> Any:
    if path:
        scaffold.saver.restore(session, path)
        return str(path)
    if checkpoint_dir:
        return restore_latest(scaffold.saver, session, checkpoint_dir)
    return None


_OWN = OwnLauncher()


def launcher_of(graph: Any) -> Launcher:
    """The launcher of ``graph``: its own, if its framework launches it."""
    launcher: Launcher = getattr(graph, "launcher", _OWN)
    return launcher
