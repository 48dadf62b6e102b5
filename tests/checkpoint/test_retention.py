"""Which checkpoints are kept, and which one of a directory is meant."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints
from runhooks.errors import DataLossError, NotFoundError
from runhooks.testing import FakeClock
from tests.metric import Metric

ACCURACY = {1: 0.5, 2: 0.9, 3: 0.7, 4: float("nan")}


def steps(folder):
    return [checkpoint_step(path) for path in checkpoints(folder)]


@pytest.fixture
def kept(tmp_path, at_step, fake_clock):
    """Saves so many checkpoints, one an hour, under rules; the steps that are left."""

    def kept(*keep, count=10):
        saver, sess = rh.Saver(keep=keep), at_step(0)
        for step in range(count):
            fake_clock.advance(3600)
            saver.save(sess, tmp_path / "model.ckpt", global_step=step)
        return steps(tmp_path)

    return kept


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
def test_what_any_rule_wants_is_kept_and_the_newest(kept, keep, left):
    assert kept(*keep) == left


@pytest.mark.parametrize(
    ("options", "values", "left"),
    [
        ({}, [0.1, 0.9, 0.5, 0.2], [1, 3]),
        ({"mode": "min"}, [0.3, 0.1, 0.5, 0.2], [1, 3]),
        ({"n": 2}, [0.1, 0.9, 0.5, 0.6, 0.2], [1, 3, 4]),
        ({}, [0.5, 0.5, 0.5], [0, 2]),
        ({}, [0.5, math.nan, 0.4], [0, 2]),
        ({}, [math.nan, 0.5, math.nan], [1, 2]),
        ({"mode": "min"}, [-math.inf, math.inf, 0.0], [0, 2]),
        ({"n": 3}, [None, 0.1, None, None], [1, 3]),
    ],
    ids=str,
)
def test_the_best_are_kept(kept, options, values, left):
    rule = rh.KeepBest(Metric("accuracy", values), **options)
    assert kept(rule, count=len(values)) == left


def test_two_metrics_of_one_name_are_refused():
    raw, averaged = (
        rh.EvaluationHook({"accuracy": "x"}, every_n_steps=1, hook_name=name).metric("accuracy")
        for name in ("raw", "averaged")
    )
    with pytest.raises(ValueError, match=r"keep .* 'accuracy'.* of raw> and .* of averaged>"):
        rh.Saver(keep=[rh.KeepBest(raw), rh.KeepBest(averaged)])


def test_two_rules_may_go_by_one_metric(kept):
    metric = Metric("accuracy", [0.5, 0.9, 0.1, 0.3])
    assert kept(rh.KeepBest(metric), rh.KeepBest(metric, mode="min"), count=4) == [1, 2, 3]
    hook = rh.EvaluationHook({"accuracy": "x"}, every_n_steps=1)
    rules = [rh.KeepBest(hook.metric("accuracy"), mode=mode) for mode in ("max", "min")]
    assert rh.Saver(keep=rules)


def test_a_saver_of_an_earlier_session_ranks_what_is_there(tmp_path, at_step):
    values, metric = {}, Metric("accuracy")
    metric.by_step = lambda: values
    saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(metric)])
    for found in ({5: 0.9, 6: 0.5}, {1: 0.7, 3: 0.8, 4: 0.6}):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        values.clear()
        sess = at_step(0)
        for step, value in found.items():
            values[step] = value
            saver.save(sess, tmp_path / "run" / "model.ckpt", global_step=step)
    assert steps(tmp_path / "run") == [3, 4]


def test_a_rule_of_ones_own(kept):
    class KeepEven:
        def wanted(self, saved):
            return [it for it in saved if it.step % 2 == 0]

    assert kept(KeepEven(), count=6) == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rh.KeepLast(0), ValueError, "n .* 0"),
        (lambda: rh.KeepEvery(hours=-1), ValueError, "hours .* -1"),
        (lambda: rh.KeepBest(Metric("loss"), n=0), ValueError, "n .* 0"),
        (lambda: rh.KeepBest(Metric("loss"), mode="low"), ValueError, "mode .* 'low'"),
        (lambda: rh.Saver(keep=[5]), TypeError, "keep"),
        (lambda: rh.KeepBest("loss"), TypeError, "metric .* 'loss'"),
        (lambda: rh.Saver(keep=[], max_to_keep=3), ValueError, "max_to_keep"),
        (lambda: rh.KeepSteps([3, 7]), TypeError, r"steps .* \[3, 7\]"),
        (lambda: rh.KeepSteps(-1), ValueError, "steps .* -1"),
        (lambda: rh.KeepSteps(), ValueError, "steps"),
        (lambda: rh.KeepLast(None), TypeError, "n "),
        (lambda: rh.KeepEvery("a"), TypeError, "hours .* 'a'"),
        (lambda: rh.KeepBest(None), TypeError, "metric "),
    ],
)
def test_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


numbers = st.integers(1, 4)
# Of the best, the arguments: its metric is that of the run.
rules = st.lists(
    numbers.map(rh.KeepLast)
    | st.floats(0.5, 5).map(rh.KeepEvery)
    | st.tuples(numbers, st.sampled_from(["max", "min"]))
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
def test_restarts_in_the_middle_leave_the_same(keep, saves, restarts, chance):
    """Whether deletions are made at each save, after restarts, or some of them only later."""

    def run(folder, restarts, lazy):
        metric = Metric("loss", [loss for _, loss in saves])
        sess = _Session()
        with FakeClock() as clock:
            for step, (hours, _) in enumerate(saves):
                clock.advance(hours * 3600)
                if step == 0 or step in restarts:
                    # One that is killed before it deletes leaves that to those that come after.
                    is_last = step == len(saves) - 1
                    rules = None if lazy and not is_last and chance.random() < 0.5 else keep
                    saver = _saver(rules, metric)
                saver.save(sess, folder / "model.ckpt", global_step=step)
            _saver(keep, metric).save(sess, folder / "model.ckpt", global_step=len(saves) - 1)
        return steps(folder)

    with TemporaryDirectory() as one, TemporaryDirectory() as other, TemporaryDirectory() as third:
        undisturbed = run(Path(one), set(), lazy=False)
        assert run(Path(other), restarts, lazy=False) == undisturbed
        assert run(Path(third), restarts, lazy=True) == undisturbed


def _saver(keep, metric):
    if keep is None:  # all of them, with their metrics
        return rh.Saver(keep=[rh.KeepBest(metric), rh.KeepLast(1000)])
    rules = [rh.KeepBest(metric, *it) if isinstance(it, tuple) else it for it in keep]
    return rh.Saver(keep=rules)


class _Session:
    global_step = None
    checkpoint = None

    def snapshot(self):
        return rh.checkpoint.Snapshot({}, {})


def test_files_that_no_save_has_written_are_kept(kept, tmp_path, at_step):
    kept(rh.KeepLast(3), count=3)
    notes = tmp_path / "model.ckpt-0" / "notes.txt"
    deeper = tmp_path / "model.ckpt-1" / "plots" / "checkpoint.safetensors"
    beside = tmp_path / "model.ckpt-7"
    deeper.parent.mkdir()
    for path in (notes, deeper, beside):
        path.write_text("mine")
    saver = rh.Saver(max_to_keep=1)
    saver.save(at_step(3), tmp_path / "model.ckpt", global_step=3)
    assert steps(tmp_path) == [3]
    left = {it.relative_to(tmp_path) for it in tmp_path.rglob("*") if it.is_file()}
    mine = {it.relative_to(tmp_path) for it in (notes, deeper, beside)}
    assert left - mine == {Path("model.ckpt-3/checkpoint.safetensors")}
    assert mine <= left
    # A run that has gone back comes to that step again.
    saver.save(at_step(0), tmp_path / "model.ckpt", global_step=0)
    saver.save(at_step(0), tmp_path / "model.ckpt", global_step=0)
    assert steps(tmp_path) == [0]
    assert notes.read_text() == "mine"


def save(directory, session, keep, steps=ACCURACY):
    saver = rh.Saver(keep=keep)
    for step in steps:
        saver.save(session(step), directory / "model.ckpt", global_step=step)


def best_of(accuracy, loss):
    return [rh.KeepLast(9), rh.KeepBest(accuracy), rh.KeepBest(loss, mode="min")]


@pytest.fixture
def run(tmp_path, at_step):
    """Checkpoints of a run that knows that high accuracies and low losses are best."""
    accuracy, loss = Metric("accuracy", ACCURACY), Metric("loss", {it: it for it in ACCURACY})
    save(tmp_path, at_step, best_of(accuracy, loss))
    return tmp_path


def damage(path):
    file = path / "checkpoint.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def weights(*args, **kwargs):
    """The step at which the weights that are loaded were saved."""
    return int(rh.load(*args, only="weights", **kwargs)[0])


def test_the_best_is_found_with_its_metrics(run):
    best = rh.best_checkpoint(run, "accuracy")
    assert (best.path, best.step) == (str(run / "model.ckpt-2"), 2)
    assert best.metrics == {"accuracy": 0.9, "loss": 2}


def test_the_mode_is_that_of_the_saver_unless_it_is_given(run):
    assert rh.best_checkpoint(run, "loss").step == 1
    assert rh.best_checkpoint(run, "loss", "max").step == 4


def test_a_metric_that_none_has_is_an_error_with_the_near_ones(run, tmp_path):
    with pytest.raises(ValueError, match="'acuracy'.*did you mean 'accuracy'"):
        rh.best_checkpoint(run, "acuracy")
    with pytest.raises(NotFoundError, match="no checkpoint"):
        rh.best_checkpoint(tmp_path / "empty", "accuracy")


def test_without_metrics_there_is_no_best(tmp_path, at_step):
    save(tmp_path, at_step, [rh.KeepLast(5)])
    with pytest.raises(ValueError, match="no metrics"):
        rh.best_checkpoint(tmp_path, "accuracy", "max")


def test_the_newest_is_loaded_unless_a_step_or_the_best_is_asked_for(run):
    assert weights(run) == 4
    assert weights(run, step=3) == 3
    assert weights(run, best="accuracy") == 2
    assert weights(run, best="loss", mode="max") == 4
    assert weights(run / "model.ckpt-1") == 1


def test_a_damaged_newest_gives_way_to_the_one_before(run, caplog):
    damage(run / "model.ckpt-4")
    assert weights(run) == 3
    assert "trying the one before" in caplog.text


def test_what_was_asked_for_by_name_gives_way_to_nothing(run):
    damage(run / "model.ckpt-2")
    for choice in ({"step": 2}, {"best": "accuracy"}):
        with pytest.raises(DataLossError, match="model.ckpt-2.*checksum"):
            rh.load(run, **choice)
    with pytest.raises(DataLossError, match="model.ckpt-2.*checksum"):
        rh.load(run / "model.ckpt-2")


def test_a_step_that_is_not_there_is_an_error_with_those_that_are(run):
    with pytest.raises(NotFoundError, match="step 7; the steps are 1, 2, 3, 4"):
        rh.load(run, step=7)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"step": 1, "best": "accuracy"}, "step and best cannot both"),
        ({"step": 1.5}, "step must be a whole number"),
        ({"best": 3}, "best must be a str"),
        ({"mode": "max"}, "mode must be"),
        ({"best": "accuracy", "mode": "most"}, "mode must be 'max' or 'min'.*'most'"),
    ],
)
def test_arguments_are_checked(choice, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        rh.load(tmp_path, **choice)


def test_one_checkpoint_leaves_no_choice(run):
    with pytest.raises(ValueError, match="model.ckpt-1 is one checkpoint"):
        rh.load(run / "model.ckpt-1", step=1)


def test_where_there_is_nothing(tmp_path):
    with pytest.raises(NotFoundError, match="there is no checkpoint or file .*nothing"):
        rh.load(tmp_path / "nothing")
    with pytest.raises(NotFoundError, match="there is no checkpoint in"):
        rh.load(tmp_path)
    for suffix in ("index", "data-00000-of-00001"):
        (tmp_path / f"model.ckpt-5.{suffix}").touch()
    with pytest.raises(NotFoundError, match="TensorFlow"):
        rh.load(tmp_path)
    with pytest.raises(TypeError, match="source must be given"):
        rh.load(None)


def test_what_a_training_deletes_meanwhile_gives_way_to_what_it_saves(tmp_path):
    program = Path(__file__).with_name("vanishing_program.py")
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True)
    assert done.stderr == ""
    best, newest, of_step = (json.loads(line) for line in done.stdout.splitlines())
    assert best == {"best": [2, 4, 5]}
    assert newest == {"newest": [3, 4, 5]}
    errors = [f"no checkpoint in  is of step 2; the steps are {it}" for it in ("4", "4, 5", "5")]
    assert {*of_step["step"]} <= {2, *errors}
