"""MonitoredTrainingSession: its arguments, and a run directory that is taken up again."""

import logging

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints
from runhooks.testing import FakeClock, RecordingHook, read_events


@pytest.fixture
def clock():
    """Time stands still, so that what is due by seconds is due when the test says so."""
    with FakeClock(start=1000.0) as clock:
        yield clock


@pytest.fixture
def train(model):
    """Runs ``steps`` steps in a session with the arguments given."""

    def run(steps, each=lambda: None, **kwargs):
        with rh.MonitoredTrainingSession(**kwargs) as sess:
            for _ in range(steps):
                sess.run(model.train_op)
                each()
            return sess.run(model.weights, hooks=False)

    return run


def saved_steps(directory):
    return [checkpoint_step(path) for path in checkpoints(directory)]


def steps_of(tag, directory):
    return [event.step for event in read_events(directory) if event.tag == tag]


@pytest.mark.parametrize("argument", [{"master": "grpc://host:1"}, {"config": object()}], ids=list)
def test_arguments_that_make_no_sense_here_are_refused_with_the_reason(argument, model):
    (name,) = argument
    with pytest.raises(ValueError, match=name) as caught:
        rh.MonitoredTrainingSession(**argument)
    assert "engine" in str(caught.value) or "process" in str(caught.value)


def test_without_a_directory_nothing_is_written(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(train(3), [3, 3])
    assert list(tmp_path.iterdir()) == []


# resuming


def test_resuming_says_from_which_step(train, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "runhooks"):
        train(3, checkpoint_dir=tmp_path)
        assert "resumed" not in caplog.text
        train(1, checkpoint_dir=tmp_path)
    assert "resumed from step 3" in caplog.text


def test_checkpoint_of_a_step_holds_what_every_other_hook_made_of_it(train, tmp_path):
    class Counts(rh.SessionRunHook):
        count = 0

        def after_create_session(self, session, coord):
            self.count_at_start = self.count

        def after_run(self, run_context, run_values):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    with pytest.raises(KeyboardInterrupt):
        train(5, raise_at(3), checkpoint_dir=tmp_path, save_checkpoint_steps=1, hooks=[Counts()])
    resumed = Counts()
    train(0, checkpoint_dir=tmp_path, hooks=[resumed])
    assert resumed.count_at_start == resumed.count == 3


def raise_at(step):
    """A function that raises KeyboardInterrupt at its call number ``step``."""
    left = iter(range(step - 1))

    def call():
        if next(left, None) is None:
            raise KeyboardInterrupt

    return call


@pytest.mark.every_engine
def test_resumed_run_equals_an_undisturbed_one(train, tmp_path):
    undisturbed = train(6, checkpoint_dir=tmp_path / "a", save_checkpoint_steps=2)
    with pytest.raises(KeyboardInterrupt):
        train(6, raise_at(5), checkpoint_dir=tmp_path / "b", save_checkpoint_steps=2)
    resumed = train(2, checkpoint_dir=tmp_path / "b", save_checkpoint_steps=2)
    np.testing.assert_array_equal(resumed, undisturbed)


# checkpoints


@pytest.mark.parametrize(
    ("steps", "secs_each", "cadence", "saved"),
    [
        (7, 0, {"save_checkpoint_steps": 3}, [0, 3, 6, 7]),
        (8, 1, {"save_checkpoint_secs": 3}, [0, 4, 7, 8]),
        (4, 300, {}, [0, 3, 4]),
    ],
)
def test_checkpoints_are_saved_in_their_cadence_and_at_the_end(
    train, tmp_path, clock, steps, secs_each, cadence, saved
):
    train(steps, lambda: clock.advance(secs_each), checkpoint_dir=tmp_path, **cadence)
    assert saved_steps(tmp_path) == saved


# summaries


@pytest.fixture
def loss_summary(model):
    rh.summary.scalar("loss", model.loss)


@pytest.mark.every_engine
@pytest.mark.parametrize("cadence", [{"save_summaries_steps": 3}, {"save_summaries_secs": 3}])
def test_summaries_are_saved_in_their_cadence(train, tmp_path, loss_summary, clock, cadence):
    train(7, lambda: clock.advance(1), checkpoint_dir=tmp_path, **cadence)
    assert steps_of("loss", tmp_path) == [1, 4, 7]


@pytest.mark.parametrize("never", [None, 0])
def test_what_has_no_cadence_is_not_written(never, train, tmp_path, loss_summary):
    kinds = ("checkpoint_secs", "checkpoint_steps", "summaries_secs", "summaries_steps")
    cadences = dict.fromkeys([*(f"save_{kind}" for kind in kinds), "log_step_count_steps"], never)
    train(3, checkpoint_dir=tmp_path, **cadences)
    assert saved_steps(tmp_path) == []
    assert steps_of("loss", tmp_path) == steps_of("global_step/sec", tmp_path) == []


def test_summaries_go_to_summary_dir_if_given(train, tmp_path, loss_summary):
    train(1, summary_dir=tmp_path / "board")
    assert list(tmp_path.iterdir()) == [tmp_path / "board"]
    train(1, checkpoint_dir=tmp_path / "model", summary_dir=tmp_path / "board")
    assert steps_of("loss", tmp_path / "board") == [1, 1]
    assert saved_steps(tmp_path / "board") == []
    assert steps_of("loss", tmp_path / "model") == []


def test_steps_per_second_are_written_every_n_steps(train, tmp_path, clock):
    train(9, lambda: clock.advance(0.5), checkpoint_dir=tmp_path, log_step_count_steps=4)
    events = [event for event in read_events(tmp_path) if event.tag == "global_step/sec"]
    assert [(event.step, event.value) for event in events] == [(5, 2.0), (9, 2.0)]


def test_resumed_run_writes_each_step_once(train, tmp_path, loss_summary):
    for _ in range(2):
        train(3, checkpoint_dir=tmp_path, save_summaries_steps=1)
    assert steps_of("loss", tmp_path) == [1, 2, 3, 4, 5, 6]


# chief and workers


def test_chief_has_its_own_hooks_before_those_of_all(train, model):
    calls = []
    chief, common = RecordingHook("chief", calls), RecordingHook("common", calls)
    train(1, hooks=[common], chief_only_hooks=[chief])
    assert [name for name, method in calls if method == "before_run"] == ["chief", "common"]


def test_worker_begins_with_what_the_chief_has_saved_and_writes_nothing(
    train, tmp_path, loss_summary
):
    train(3, checkpoint_dir=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    chief, common = RecordingHook(), RecordingHook()
    weights = train(
        2,
        is_chief=False,
        checkpoint_dir=tmp_path,
        save_checkpoint_steps=1,
        hooks=[common],
        chief_only_hooks=[chief],
    )
    np.testing.assert_array_equal(weights, [5, 5])
    assert chief.calls == []
    assert common.methods.count("after_run") == 2
    assert sorted(tmp_path.rglob("*")) == before


# arguments that make no sense


@pytest.mark.parametrize("what", ["checkpoint", "summaries"])
def test_cadence_in_steps_and_in_seconds_at_once_is_refused(what, model, tmp_path):
    both = {f"save_{what}_steps": 5, f"save_{what}_secs": 60}
    with pytest.raises(ValueError, match=r"5.*60|60.*5"):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, **both)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scaffold", "scaffold"),
        ("hooks", 5),
        ("chief_only_hooks", [5]),
    ],
)
def test_wrong_argument_is_named_with_what_was_given(argument, value, model, tmp_path):
    arguments = {"checkpoint_dir": tmp_path, argument: value}
    with pytest.raises(
        (TypeError, ValueError), match=argument.removeprefix("chief_only_")
    ) as caught:
        rh.MonitoredTrainingSession(**arguments)
    assert repr(value).strip("[]") in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "save_checkpoint_steps",
        "save_checkpoint_secs",
        "save_summaries_steps",
        "save_summaries_secs",
        "log_step_count_steps",
    ],
)
def test_cadence_below_zero_is_refused_by_its_name(name, model, tmp_path):
    with pytest.raises(ValueError, match=f"{name}.*-4"):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, **{name: -4})
    with pytest.raises(TypeError, match=f"{name}.*'a'"):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, **{name: "a"})


@pytest.mark.parametrize("name", ["checkpoint_dir", "summary_dir"])
def test_empty_directory_is_refused(name, model):
    with pytest.raises(ValueError, match=name):
        rh.MonitoredTrainingSession(**{name: ""})


def test_model_built_twice_in_one_graph_gets_a_hint(model, build_model, train, tmp_path):
    train(1, checkpoint_dir=tmp_path)
    build_model()
    with pytest.raises(ValueError, match="'weights'.*'weights_1'"):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path)


def iterations(graph, directory, save_steps, inner_asks=False, feeds=True):
    """Make iterations of three runs each, up to step 9."""
    x = rh.placeholder("x") if feeds else rh.inputs(lambda step: iter(range(step, 99)), name="x")
    total = rh.Variable(0, name="total")
    changes = total.assign(rh.call(lambda total, x: total + int(x), total, x))
    train_op = rh.group(changes, rh.train.get_or_create_global_step().assign_add(1))
    with rh.MonitoredTrainingSession(
        checkpoint_dir=directory,
        hooks=[rh.StopAtStepHook(last_step=9)],
        save_checkpoint_steps=save_steps,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as session:
        while not session.should_stop():
            for _ in range(3):
                if not inner_asks or not session.should_stop():
                    session.run(train_op, {x: 1} if feeds else None)


MIDDLE = "was saved in the middle of an iteration"


@pytest.mark.parametrize(("save_steps", "saved"), [(2, 2), (4, 4), (5, 5)])
def test_checkpoint_in_the_middle_of_an_iteration_is_warned_of_once(
    graph, tmp_path, caplog, save_steps, saved
):
    iterations(graph, tmp_path, save_steps)
    (warning,) = [it.getMessage() for it in caplog.records if MIDDLE in it.getMessage()]
    assert warning.startswith(str(tmp_path / f"model.ckpt-{saved} "))


@pytest.mark.parametrize(
    "kind",
    [{"save_steps": 3}, {"save_steps": 4, "inner_asks": True}, {"save_steps": 4, "feeds": False}],
)
def test_checkpoint_that_resumes_exactly_is_not_warned_of(graph, tmp_path, caplog, kind):
    iterations(graph, tmp_path, **kind)
    assert MIDDLE not in caplog.text


class StopsAt(rh.SessionRunHook):
    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step >= self.step:
            run_context.request_stop()


@pytest.mark.parametrize(
    ("hook", "asks", "again"),
    [
        (lambda: rh.StopAtStepHook(last_step=3), False, 3),
        (lambda: rh.StopAtStepHook(num_steps=3), False, 6),
        (lambda: StopsAt(3), False, 4),
        (lambda: StopsAt(99), True, 6),
    ],
)
def test_stopped_run_that_is_started_again(tmp_path, hook, asks, again):
    steps = []
    for _ in range(2):
        with rh.Graph().as_default():
            train_op = rh.train.get_or_create_global_step().assign_add(1, name="train_op")
            with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook()]) as session:
                start = session.global_step
                while not session.should_stop():
                    session.run(train_op)
                    if asks and session.global_step == start + 3:
                        session.request_stop()
            steps.append(session.global_step)
    assert steps == [3, again]


@pytest.mark.parametrize(
    "name", ["save_checkpoint_steps", "save_summaries_steps", "log_step_count_steps"]
)
def test_steps_that_are_not_whole_are_refused_by_the_name_that_was_given(tmp_path, name):
    with (
        rh.Graph().as_default(),
        pytest.raises(TypeError, match=f"{name} must be a whole number"),
    ):
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, **{name: 1000 / 3})
