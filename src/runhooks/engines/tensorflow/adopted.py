"""Sessions that TensorFlow or a user made, as session layers and hooks see them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.client.session import SessionInterface

from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.engines.tensorflow.step_graph import step_graph_of

_ATTRIBUTE = "runhooks_session"


class AdoptedSession(SessionState, SessionInterface):  # type: ignore[misc]
    """A session around another one of TensorFlow's, which makes the runs.

    Attributes that it lacks are looked up in the other.
    """

    def __init__(self, session: Any) -> None:
        self.adopted = session
        SessionState.__init__(self, step_graph_of(session.graph))
        self.is_shared = True

    def __getattr__(self, name: str) -> Any:
        if name == "adopted":  # not made yet
            raise AttributeError(name)
        return getattr(self.adopted, name)

    @property
    def graph(self) -> Any:
        """The graph that it runs."""
        return self.adopted.graph

    @property
    def _sess(self) -> Any:
        return self.adopted

    @property
    def sess_str(self) -> Any:
        """The target of the session, for TensorFlow."""
        return self.adopted.sess_str

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """As ``Session.run``."""
        self.check_no_hooks(hooks)
        return self.run_whole(fetches, feed_dict, options, run_metadata)

    def run_plainly(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """``run`` of the session itself."""
        return self.adopted.run(fetches, feed_dict, options, run_metadata)

    def close(self) -> None:
        """Close the session."""
        self.is_over = True
        self.adopted.close()


class ObservedSession(AdoptedSession):
    """A session whose runs others make; its global step is read each time that it is needed."""

    def __init__(self, session: Any) -> None:
        AdoptedSession.__init__(self, session)
        self._read_step: Callable[[], Any] | None = None

    @property
    def global_step(self) -> int | None:
        """The global step, by a run of its own."""
        return self.refresh_step()

    def run_plainly(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        if fetches is not self.step_graph.step_reads.tensor:
            return AdoptedSession.run_plainly(self, fetches, feed_dict, options, run_metadata)
        if self._read_step is None:
            self._read_step = self.adopted.make_callable(fetches)
        return self._read_step()


def observed(session: Any) -> ObservedSession:
    """Return a session of TensorFlow's as hooks see it; always the same object."""
    found = getattr(session, _ATTRIBUTE, None)
    if not isinstance(found, ObservedSession):
        found = ObservedSession(session)
        with suppress(AttributeError):
            setattr(session, _ATTRIBUTE, found)
    return found


def is_session(session: Any) -> bool:
    """Return whether ``session`` is one of TensorFlow's."""
    return isinstance(getattr(session, "graph", None), tf.Graph)
