"""What a hook may ask of the session and of the coordinator it is handed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class RawSession(Protocol):
    """A session of any engine, with no hooks around it."""

    @property
    def graph(self) -> Any:
        """The graph it runs."""
        ...

    @property
    def global_step(self) -> int | None:
        """The global step, known on the host without a run; None if the graph has none."""
        ...

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Compute ``fetches`` and return values in their shape."""
        ...


class StopSignal(Protocol):
    """The part of a coordinator that a hook needs."""

    def should_stop(self) -> bool:
        """Whether the threads of the session were asked to stop."""
        ...

    def request_stop(self, ex: BaseException | None = None) -> None:
        """Ask them to stop, because of ``ex`` if given."""
        ...
