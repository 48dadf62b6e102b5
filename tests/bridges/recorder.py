"""A hook that keeps what it sees, for the tests and for the program that trains with Keras."""

from __future__ import annotations

from typing import Any

import numpy as np

import runhooks as rh


class Recorder(rh.SessionRunHook):
    """Keeps what it fetches, in every run from a step on; counts the runs, also over a resume."""

    def __init__(self, from_step: int = 0, **fetches: Any) -> None:
        self.fetches = fetches
        self.from_step = from_step
        self.steps: list[int] = []
        self.values: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.runs = 0

    def begin(self) -> None:
        self.calls.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append(f"session {session.global_step}")

    def before_run(self, run_context: Any) -> rh.SessionRunArgs | None:
        asks = run_context.session.global_step >= self.from_step
        return rh.SessionRunArgs(self.fetches) if asks else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results is None:
            return
        self.runs += 1
        self.steps.append(run_context.session.global_step)
        self.values.append(run_values.results)

    def end(self, session: Any) -> None:
        self.calls.append(f"end {session.global_step}")

    def on_exception(self, session: Any, exception: BaseException) -> None:
        self.calls.append(f"on_exception {exception}")

    def state_dict(self) -> dict[str, Any]:
        return {"runs": self.runs, "array": np.arange(self.runs)}

    def load_state_dict(self, state: Any) -> None:
        assert state["array"].tolist() == list(range(state["runs"]))
        self.runs = state["runs"]

    def column(self, name: str) -> list[float]:
        """What it has fetched under a name, as numbers."""
        return [float(it[name]) for it in self.values]
