"""How the session of a monitored session opens: at the start, and again whenever one is lost.

Read it from top to bottom: ``Opening.open`` creates a raw session, its creator restores or
initializes it (``OwnOpener`` below, for graphs of runhooks), then threads and hooks start.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from runhooks.checkpoint import Saver, latest_checkpoint, restore_latest
from runhooks.checkpoint.latest import check_no_tensorflow_checkpoints
from runhooks.contract import RawSession, StopRequest
from runhooks.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError
from runhooks.graph import GraphKeys, get_default_graph
from runhooks.graph.base import BaseGraph, Place, SessionOpener
from runhooks.ranks import current_group
from runhooks.session.hook_list import HookList
from runhooks.session.hooked import HookedSession, Iteration, LiveSession
from runhooks.session.session import Session
from runhooks.session.threads import Coordinator
from runhooks.stores import is_url, normal, without_file_scheme
from runhooks.summary import merge_all

_log = logging.getLogger("runhooks")


class Creator(Protocol):
    """An object that creates raw sessions: a ``SessionCreator``, or one of TensorFlow's."""

    def create_session(self) -> Any: ...


@dataclass(frozen=True)
class Opening:
    """All that opening a session takes, the same at the start and at each recovery.

    ``compares_states``: whether to warn of restored states that belong to nothing in the program.
    ``iteration``: the iteration of the loop.
    ``restores_from``: the directory whose latest checkpoint ``creator`` restores, if it does.
    """

    graph: BaseGraph
    creator: Creator
    hooks: HookList
    stop: StopRequest
    grace_secs: float
    compares_states: bool
    restores_from: Place
    iteration: Iteration

    def open(self, recoveries: int, last_checkpoint: str | None) -> LiveSession:
        """Open a session, the successor of ``recoveries`` that were lost.

        ``last_checkpoint``: the one that the session before was restored from, or saved as, last.
        """
        opener = opener_of(self.graph)
        with self.graph.as_default():
            opener.prepare_graph()
            # The creator finalizes the scaffold, and then calls open_chief or try_worker below.
            raw: RawSession = opener.as_raw_session(self.creator.create_session())
        try:
            _check_found(raw, last_checkpoint, self.restores_from)
            _check_objects(self.graph, raw, recoveries)
        except BaseException:
            raw.close()
            raise
        raw.recoveries, raw.stop_request = recoveries, self.stop
        coord = Coordinator(clean_stop_exception_types=())
        session = LiveSession(raw, coord, HookedSession(raw, self.iteration))
        try:
            opener.start_threads(raw, coord)
            self.hooks.start(session)
        except BaseException:
            session.close(self.grace_secs)
            raise
        if self.compares_states and current_group().is_chief:  # others have fewer hooks
            self.hooks.compare_states(raw)
        return session


class OwnOpener(SessionOpener):
    """Opens the sessions of graphs that runhooks computes."""

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

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        plain = without_file_scheme(place)
        return normal(os.fspath(plain)) if is_url(plain) else Path(plain).expanduser().absolute()

    def fill_scaffold(self, scaffold: Any) -> None:
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
            # Summaries that can no longer be merged can still be saved one by one.
            summaries = get_default_graph().get_collection(GraphKeys.SUMMARIES) or None
            scaffold.summary_op = summaries if summary_op is None else summary_op
        if scaffold.saver is None:
            saver = scaffold.get_or_default("saver", GraphKeys.SAVERS, _nothing)
            scaffold.saver = Saver() if saver is None else saver

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Session:
        session = Session()
        try:
            restored = _restore(scaffold, session, checkpoint_dir, path)
            if restored is None:
                _initialize(scaffold, session)
            else:
                _log.info("resumed from step %s: %s", session.global_step, restored)
                if scaffold.saver.is_partial:
                    _log.warning(
                        "%s has restored the variables in var_list of its saver alone: all others, "
                        "and what hooks and inputs keep, start over",
                        restored,
                    )
            _make_ready(scaffold, session)
        except BaseException:
            session.close()  # another may be made, and the device may not hold both
            raise
        return session

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Session | None, Exception | None]:
        if checkpoint_dir and latest_checkpoint(checkpoint_dir) is None:
            return None, FailedPreconditionError("it has saved no checkpoint there yet")
        try:
            return self.open_chief(scaffold, master, config, checkpoint_dir, None), None
        except FailedPreconditionError as lacking:
            return None, lacking

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        path = None if not checkpoint_dir else str(checkpoint_dir)
        return DeadlineExceededError(message, path=path)


_OWN = OwnOpener()


def opener_of(graph: BaseGraph) -> SessionOpener:
    """Return how sessions of ``graph`` are opened: by its framework, or by ``OwnOpener``."""
    return graph.opener or _OWN


def _restore(scaffold: Any, session: Session, checkpoint_dir: Place, path: Place) -> str | None:
    """Restore a checkpoint; return its path, None if there is none."""
    if path:
        scaffold.saver.restore(session, path)
        return str(path)
    if not checkpoint_dir:
        return None
    restored = restore_latest(scaffold.saver, session, checkpoint_dir)
    if restored is None:
        check_no_tensorflow_checkpoints(checkpoint_dir)
    return restored


def _initialize(scaffold: Any, session: Session) -> None:
    if scaffold.init_op is not None:
        session.run(scaffold.init_op, scaffold.init_feed_dict)
    if scaffold.init_from is not None:
        scaffold.init_from.load_into(session)
    if scaffold.init_fn is not None:
        scaffold.init_fn(session)


def _make_ready(scaffold: Any, session: Session) -> None:
    """Run the local init op. Raises FailedPreconditionError if the session is not ready."""
    _check_ready(session, "ready_for_local_init_op", scaffold.ready_for_local_init_op)
    if scaffold.local_init_op is not None:
        session.run(scaffold.local_init_op, scaffold.local_init_feed_dict)
    _check_ready(session, "ready_op", scaffold.ready_op)


def _check_ready(session: Session, name: str, op: Any) -> None:
    if op is None:
        return
    answer = session.run(op)
    if answer is None:
        return
    lacking = np.asarray(answer)
    # A compiled function has one output shape: it can return True, but not an empty list.
    is_true = lacking.dtype == bool and lacking.shape == () and lacking
    if lacking.size and not is_true:
        raise FailedPreconditionError(
            f"the session is not ready: the scaffold's {name} returned {lacking.tolist()}"
        )


def _check_found(raw: RawSession, last_checkpoint: str | None, restores_from: Place) -> None:
    """Raise UnavailableError if a checkpoint that was there before is out of sight."""
    if not restores_from:
        return
    directory = os.fspath(restores_from)
    lies_there = [
        path is not None and Path(path).parent == Path(directory)
        for path in (last_checkpoint, raw.checkpoint)
    ]
    if lies_there == [True, False]:
        raise UnavailableError(
            f"no checkpoint is found in {directory!r} any more, where {last_checkpoint!r} was "
            "saved: to start over would lose its steps",
            path=directory,
        )


def _check_objects(graph: BaseGraph, raw: RawSession, recoveries: int) -> None:
    """Raise FailedPreconditionError if a lost session has left its objects in mid-run."""
    objects = graph.objects
    if objects is None:
        return
    if recoveries and objects.changed:
        raise FailedPreconditionError(
            f"the session was lost and there is no checkpoint to restore: its steps have changed "
            f"{objects} in place, which cannot be undone; give checkpoint_dir"
        )
    if objects.changed:
        _log.warning(
            "the session starts at step %s with %s as an earlier session has left them: restore a "
            "checkpoint, or make them and the graph anew, if that is not intended",
            *(raw.global_step, objects),
        )
    objects.settle()


def _nothing() -> None:
    return None


def _merged() -> Any:
    return None if get_default_graph().finalized else merge_all()
