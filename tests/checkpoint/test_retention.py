from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import Keep, checkpoint_step, checkpoints
from runhooks.testing import FakeClock

AtStep = Callable[[int], Any]


def steps(folder: Path) -> list[int | None]:
    return [checkpoint_step(path) for path in checkpoints(folder)]


@pytest.fixture
def kept(tmp_path: Path, at_step: AtStep, fake_clock: FakeClock) -> Callable[..., Any]:
    """Saves a checkpoint an hour, with these metrics, under rules; the steps that are left."""

    def kept(*keep: Keep, metrics: Iterable[dict[str, Any]]) -> list[int | None]:
        known = dict(enumerate(metrics))
        saver = rh.Saver(keep=keep, metrics=lambda step: known[step])
        for step in known:
            fake_clock.advance(3600)
            saver.save(at_step(step), tmp_path / "model.ckpt", global_step=step)
        return steps(tmp_path)

    return kept


def accuracies(*values: float) -> list[dict[str, float]]:
    return [{"accuracy": value} for value in values]


NONE: list[dict[str, float]] = [{}] * 10


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ([rh.KeepLast(3)], [7, 8, 9]),
        ([rh.KeepEvery(hours=4)], [4, 8, 9]),
        ([rh.KeepSteps(2, 5, 77)], [2, 5, 9]),
        ([rh.KeepLast(2), rh.KeepEvery(hours=3), rh.KeepSteps(1)], [1, 3, 6, 8, 9]),
        ([], [9]),
    ],
    ids=str,
)
def test_what_any_rule_wants_is_kept_and_the_newest(
    kept: Callable[..., Any], keep: list[Keep], left: list[int]
) -> None:
    assert kept(*keep, metrics=NONE) == left


@pytest.mark.parametrize(
    ("rule", "values", "left"),
    [
        (rh.KeepBest("accuracy"), [0.1, 0.9, 0.5, 0.2], [1, 3]),
        (rh.KeepBest("accuracy", mode="min"), [0.3, 0.1, 0.5, 0.2], [1, 3]),
        (rh.KeepBest("accuracy", n=2), [0.1, 0.9, 0.5, 0.6, 0.2], [1, 3, 4]),
        (rh.KeepBest("accuracy"), [0.5, 0.5, 0.5], [0, 2]),
        (rh.KeepBest("accuracy"), [0.5, math.nan, 0.4], [0, 2]),
        (rh.KeepBest("accuracy"), [math.nan, 0.5, math.nan], [1, 2]),
        (rh.KeepBest("accuracy", mode="min"), [-math.inf, math.inf, 0.0], [0, 2]),
        (rh.KeepBest("accuracy", n=3), [None, 0.1, None, None], [1, 3]),
    ],
    ids=str,
)
def test_the_best_are_kept(
    kept: Callable[..., Any], rule: Keep, values: list[float | None], left: list[int]
) -> None:
    known = [{} if value is None else {"accuracy": value} for value in values]
    assert kept(rule, metrics=known) == left


def test_metrics_are_known_again_after_a_restart(tmp_path: Path, at_step: AtStep) -> None:
    for step, accuracy in enumerate([0.1, np.float32(0.9), 0.5, 0.6]):
        saver = rh.Saver(
            keep=[rh.KeepBest("accuracy")], metrics=lambda step, it=accuracy: {"accuracy": it}
        )
        saver.save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert steps(tmp_path) == [1, 3]


def test_each_deletion_is_logged_with_its_reason(
    kept: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="runhooks")
    kept(rh.KeepLast(1), rh.KeepBest("accuracy"), metrics=accuracies(0.9, 0.25, 0.3))
    assert caplog.messages == [
        f"deleted checkpoint {tmp_path}/model.ckpt-1, accuracy=0.25: none of "
        "KeepLast(n=1), KeepBest(metric='accuracy', n=1, mode='max') keeps it"
    ]


def test_a_rule_of_ones_own(kept: Callable[..., Any]) -> None:
    class KeepEven:
        def wanted(self, saved: Sequence[Any]) -> Sequence[Any]:
            return [it for it in saved if it.step % 2 == 0]

    assert kept(KeepEven(), metrics=NONE[:6]) == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rh.KeepLast(0), ValueError, "n .* 0"),
        (lambda: rh.KeepEvery(hours=-1), ValueError, "hours .* -1"),
        (lambda: rh.KeepBest("loss", n=0), ValueError, "n .* 0"),
        (lambda: rh.KeepBest("loss", mode="low"), ValueError, "mode .* 'low'"),
        (lambda: rh.Saver(keep=[5]), TypeError, "keep"),
        (lambda: rh.Saver(keep=[rh.KeepBest("loss")]), ValueError, "metrics"),
        (lambda: rh.Saver(keep=[], max_to_keep=3), ValueError, "max_to_keep"),
        (lambda: rh.KeepSteps([3, 7]), TypeError, r"steps .* \[3, 7\]"),
        (lambda: rh.KeepSteps(-1), ValueError, "steps .* -1"),
        (lambda: rh.KeepSteps(), ValueError, "steps"),
        (lambda: rh.KeepLast(None), TypeError, "n "),
        (lambda: rh.KeepEvery("a"), TypeError, "hours .* 'a'"),
        (lambda: rh.KeepBest(None), TypeError, "metric "),
    ],
)
def test_arguments(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


numbers = st.integers(1, 4)
rules = st.lists(
    numbers.map(rh.KeepLast)
    | st.floats(0.5, 5).map(rh.KeepEvery)
    | st.builds(rh.KeepBest, st.just("loss"), numbers, st.sampled_from(["max", "min"]))
    | st.lists(st.integers(0, 12), min_size=1, max_size=3).map(lambda steps: rh.KeepSteps(*steps)),
    max_size=4,
)
losses = st.none() | st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan])


@settings(deadline=None, max_examples=10)  # each saves some thirty checkpoints
@given(
    rules,
    st.lists(st.tuples(st.floats(0, 3), losses), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
    st.randoms(use_true_random=False),
)
def test_restarts_in_the_middle_leave_the_same(
    keep: list[Keep],
    saves: list[tuple[float, float | None]],
    restarts: set[int],
    chance: Any,
) -> None:
    """Whether deletions are made at each save, after restarts, or some of them only later."""

    def run(folder: Path, restarts: set[int], lazy: bool) -> list[int | None]:
        known = [{} if loss is None else {"loss": loss} for _, loss in saves]
        sess = _Session()
        with FakeClock() as clock:
            for step, (hours, _) in enumerate(saves):
                clock.advance(hours * 3600)
                if step == 0 or step in restarts:
                    # One that is killed before it deletes leaves that to those that come after.
                    is_last = step == len(saves) - 1
                    rules = None if lazy and not is_last and chance.random() < 0.5 else keep
                    saver = _saver(rules, known)
                saver.save(sess, folder / "model.ckpt", global_step=step)
            _saver(keep, known).save(sess, folder / "model.ckpt", global_step=len(saves) - 1)
        return steps(folder)

    with TemporaryDirectory() as one, TemporaryDirectory() as other, TemporaryDirectory() as third:
        undisturbed = run(Path(one), set(), lazy=False)
        assert run(Path(other), restarts, lazy=False) == undisturbed
        assert run(Path(third), restarts, lazy=True) == undisturbed


def _saver(keep: list[Keep] | None, known: list[dict[str, float]]) -> rh.Saver:
    if keep is None:
        return rh.Saver(max_to_keep=None, metrics=lambda step: known[step])
    return rh.Saver(keep=keep, metrics=lambda step: known[step])


class _Session:
    global_step = None
    checkpoint = None

    def snapshot(self) -> Any:
        return rh.checkpoint.Snapshot({}, {})


def test_unknown_metric_is_warned_of_once(tmp_path, at_step, caplog):
    saver = rh.Saver(keep=[rh.KeepBest("accuracy")], metrics=lambda step: {"accurcy": step})
    for step in (1, 2):
        saver.save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    (warning,) = [it for it in caplog.messages if "KeepBest" in it]
    assert "did you mean 'accurcy'?" in warning


def test_metric_that_is_not_there_yet_is_not_warned_of(tmp_path, at_step, caplog):
    saver = rh.Saver(keep=[rh.KeepBest("accuracy")], metrics=lambda step: {})
    saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    assert caplog.messages == []


@pytest.mark.parametrize("metrics", [None, {"m": "good"}, {"m": [1.0, 2.0]}, 5], ids=repr)
def test_metrics_that_are_not_numbers_are_refused(tmp_path, at_step, metrics):
    saver = rh.Saver(metrics=lambda step: metrics)
    with pytest.raises(TypeError, match="metrics"):
        saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
