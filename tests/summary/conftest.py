"""TensorBoard's own readers, as what decides whether a file is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from runhooks.summary import FileWriter, Summary, Value

Load = Callable[[], list[Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """All events of the folder of the test, as TensorBoard's loader reads them."""

    def load() -> list[Any]:
        paths = sorted(tmp_path.glob("*.tfevents.*"))
        return [event for path in paths for event in EventFileLoader(str(path)).Load()]

    return load


@pytest.fixture
def accumulate(tmp_path: Path) -> Callable[..., EventAccumulator]:
    """Write values at step 7, and read the folder of the test as TensorBoard does."""

    def accumulate(*values: Value) -> EventAccumulator:
        with FileWriter(tmp_path) as writer:
            writer.add_summary(Summary(values), 7)
        # 0: keep all, where the default is to drop some.
        kinds = ("scalars", "histograms", "images", "tensors")
        accumulator = EventAccumulator(str(tmp_path), dict.fromkeys(kinds, 0))
        accumulator.Reload()
        return accumulator

    return accumulate
