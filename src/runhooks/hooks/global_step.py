"""The global step, as hooks ask for it."""

from __future__ import annotations

from typing import Any

from runhooks.contract import RawSession, SessionRunContext, SessionRunHook
from runhooks.engines import foreign
from runhooks.graph.global_step import get_global_step
from runhooks.graph.variable import Variable

_UNKNOWN = object()


def required_global_step(hook: SessionRunHook) -> Variable:
    """The global step of the default graph, for the ``begin`` of a hook that needs one.

    Raises RuntimeError, naming the hook, if the graph has none.
    """
    global_step = get_global_step()
    if global_step is None:
        raise RuntimeError(
            f"Global step should be created to use {type(hook).__name__}: call "
            "train.get_or_create_global_step() before the session is made"
        )
    return global_step


def step_of(session: RawSession) -> int:
    """The global step of a session whose graph has one; no run, no wait if it is ours."""
    step = step_or_none(session)
    assert step is not None, "begin() made sure that the graph has a global step"
    return step


def step_or_none(session: RawSession) -> int | None:
    """As ``step_of``; None if the graph has no global step."""
    step: Any = getattr(session, "global_step", _UNKNOWN)
    if step is _UNKNOWN:  # a session that TensorFlow's own loop runs
        step = foreign.observed(session).global_step
    return step  # type: ignore[no-any-return]


def latest_step_of(session: RawSession) -> int:
    """The global step as others may have made it meanwhile; a run, where that is needed."""
    refresh = getattr(session, "refresh_step", None)
    if refresh is not None:
        refresh()
    return step_of(session)


def next_step_of(run_context: SessionRunContext) -> int:
    """The global step that a run is expected to lead to; no run, no wait."""
    # TensorFlow's own context does not tell.
    expected: int | None = getattr(run_context, "next_step", None)
    return step_of(run_context.session) + 1 if expected is None else expected


def engine_of(source: Any) -> Any:
    """The engine of a graph, or of that of a session; None if it is not known."""
    engine = getattr(source, "engine", None)
    if engine is None:
        engine = getattr(getattr(source, "graph", None), "engine", None)
    if engine is None and hasattr(source, "graph") and not hasattr(source, "global_step"):
        engine = foreign.observed(source).engine  # of a session that TensorFlow's own loop runs
    return engine
