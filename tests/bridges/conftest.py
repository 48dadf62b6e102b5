"""What the tests of bridges over PyTorch share: digits, a hook that keeps what it sees."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import runhooks as rh

DOCS = Path(__file__).parents[2] / "docs" / "bridges.md"


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


class Raises(rh.SessionRunHook):
    """Raises after a step."""

    def __init__(self, step: int, error: BaseException) -> None:
        self.step, self.error = step, error

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.global_step == self.step:
            raise self.error


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def raises() -> type[Raises]:
    return Raises


@pytest.fixture(scope="session")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """256 images, 8 batches of 32."""
    found = load_digits()
    return torch.tensor(found.data[:256], dtype=torch.float32) / 16, torch.tensor(
        found.target[:256]
    )


@pytest.fixture
def shown() -> Any:
    """Returns the program that docs/bridges.md shows under a heading."""

    def program(heading: str) -> str:
        found = re.search(rf"^## {heading}\n.*?```python\n(.*?)```", DOCS.read_text(), re.M | re.S)
        assert found is not None, heading
        return found[1]

    return program


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    level = logging.getLogger("lightning.pytorch").level
    yield
    logging.getLogger("lightning.pytorch").setLevel(level)
    torch.set_num_threads(threads)
