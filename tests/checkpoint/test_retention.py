from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runhooks.checkpoint.format import Checkpoint
from runhooks.checkpoint.retention import Retention


def saved(*times: float) -> list[Checkpoint]:
    return [
        Checkpoint(Path(f"model-{index}"), index, time, series_start=0)
        for index, time in enumerate(times)
    ]


def kept(retention: Retention, checkpoints: list[Checkpoint]) -> list[float]:
    gone = retention.superseded(checkpoints)
    return [it.wall_time for it in checkpoints if it not in gone]


def test_keeps_the_newest() -> None:
    assert kept(Retention(2, 1000), saved(0, 10, 20, 30)) == [20, 30]


def test_keeps_all_without_a_limit() -> None:
    assert kept(Retention(None, 1000), saved(0, 10, 20)) == [0, 10, 20]


def test_keeps_one_of_the_older_every_so_often() -> None:
    times = range(0, 100, 10)
    assert kept(Retention(2, 25), saved(*times)) == [30, 60, 80, 90]


@given(st.lists(st.floats(0, 1e6), max_size=30).map(sorted), st.integers(1, 6), st.floats(1, 1e5))
def test_deciding_at_every_save_is_deciding_once(
    times: list[float], max_to_keep: int, every_secs: float
) -> None:
    retention = Retention(max_to_keep, every_secs)
    step_by_step: list[Checkpoint] = []
    for checkpoint in saved(*times):
        step_by_step.append(checkpoint)
        for gone in retention.superseded(step_by_step):
            step_by_step.remove(gone)
    assert [it.wall_time for it in step_by_step] == kept(retention, saved(*times))
