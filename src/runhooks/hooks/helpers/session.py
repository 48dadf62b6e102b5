"""The global step and the log of the session that a hook works in."""

from __future__ import annotations

from runhooks.contract import RawSession, SessionRunContext, SessionRunHook, StopSignal
from runhooks.engines.foreign import session_of
from runhooks.graph.default_graph import get_default_graph
from runhooks.graph.framework import Framework, Log
from runhooks.graph.global_step import get_global_step
from runhooks.graph.tensor import Variable
from runhooks.session.coordinator import Coordinator


def required_global_step(hook: SessionRunHook) -> Variable:
    """Return the global step of the default graph, for the ``begin`` of a hook that needs one.

    Raises:
        RuntimeError: If the graph has none; the message names the hook.
    """
    global_step = get_global_step()
    if global_step is None:
        cure = "call train.get_or_create_global_step() before the session is made"
        if not get_default_graph().get_operations():
            cure = "the default graph is empty; enter yours, with graph.as_default()"
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}: {cure}")
    return global_step


def step_of(session: RawSession) -> int:
    """Return the global step of a session whose graph has one; makes no run of our sessions."""
    step = session_of(session).global_step
    assert step is not None, "begin() made sure that the graph has a global step"
    return step


def step_or_none(session: RawSession) -> int | None:
    """Return the global step of a session; None if its graph has none."""
    return session_of(session).global_step


def latest_step_of(session: RawSession) -> int:
    """Return the global step, which other processes may have advanced; costs a run where needed."""
    step = session_of(session).refresh_step()
    assert step is not None, "begin() made sure that the graph has a global step"
    return step


def next_step_of(run_context: SessionRunContext) -> int:
    """Return the global step that a run is expected to lead to; makes no run."""
    # TensorFlow's own context does not have it.
    expected: int | None = getattr(run_context, "next_step", None)
    return step_of(run_context.session) + 1 if expected is None else expected


def ask_to_stop(run_context: SessionRunContext, reason: str | None) -> None:
    """Ask the loop to stop, and say why where the context takes a reason; TensorFlow's does not."""
    if reason is not None and isinstance(run_context, SessionRunContext):
        run_context.request_stop(reason)
    else:
        run_context.request_stop()


def ask_coordinator(coord: StopSignal, reason: str | None) -> None:
    """As ``ask_to_stop``, while a session opens."""
    if reason is not None and isinstance(coord, Coordinator):
        coord.request_stop(reason=reason)
    else:
        coord.request_stop()


def log_of(session: RawSession | None) -> Log:
    """Return the logger of the framework that runs ``session``; ours if ``session`` is None.

    Users who have set TensorFlow's log level have set it for TensorFlow's hooks too.
    """
    return Framework.log if session is None else session_of(session).engine.log
