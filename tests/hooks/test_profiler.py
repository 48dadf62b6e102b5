import gzip
import json
import logging
import pstats
import sys
from pathlib import Path

import jax
import pytest
import torch

import runhooks as rh
from runhooks.graph.base import Framework
from runhooks.testing import read_events


def named(name, function):
    """``function`` as one that a profiler knows by ``name``."""
    code = function.__code__.replace(co_name=name, co_qualname=name)
    return type(function)(code, function.__globals__, name)


@pytest.fixture
def train_op(graph):
    """The run that leads to step n calls a function by the name of ``draw_<n>``."""

    functions = []  # torch's profiler reads their names when it stops

    def draws(step):
        while True:
            step += 1
            functions.append(named(f"draw_{step}", lambda: 1.0))
            yield functions[-1]()

    step = rh.train.create_global_step()
    weights = rh.Variable(0.0, name="weights")
    return rh.group(weights.assign_add(rh.inputs(draws)), step.assign_add(1), name="train_op")


@pytest.fixture
def train(train_op):
    def train(*hooks, steps):
        with rh.MonitoredSession(hooks=list(hooks)) as sess:
            for _ in range(steps):
                sess.run(train_op)

    return train


def traces(folder):
    """The traces of a folder: the events of each by the first step that is in it."""
    found = {}
    for path in Path(folder).rglob("*"):
        if path.name.startswith("profile-"):
            step = path.stem.partition("-")[2]
            found[int(step)] = [{"name": name} for _, _, name in pstats.Stats(str(path)).stats]
            continue
        if path.name.startswith("timeline-"):
            step, text = path.name.partition("-")[2].partition(".")[0], path.read_bytes()
        elif path.name == "perfetto_trace.json.gz":
            step, text = path.parent.name.partition("-")[2], gzip.decompress(path.read_bytes())
        else:
            continue
        found[int(step)] = [e for e in json.loads(text)["traceEvents"] if e.get("ph") == "X"]
    return found


def profiled(folder):
    """The steps that were made in each profile of a folder, by the first one."""
    return {
        first: sorted(
            int(event["name"].rpartition("_")[2]) for event in events if "draw_" in event["name"]
        )
        for first, events in sorted(traces(folder).items())
    }


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("save_steps", "num_steps", "found"),
    [
        (4, 1, {4: [4], 8: [8], 12: [12]}),
        (5, 3, {5: [5, 6, 7], 10: [10, 11, 12]}),
    ],
)
def test_profiles_so_many_steps_every_so_often(train, tmp_path, save_steps, num_steps, found):
    train(rh.ProfilerHook(save_steps, output_dir=tmp_path, num_steps=num_steps), steps=13)
    assert profiled(tmp_path) == found


def test_the_first_step_of_a_session_is_not_profiled(train, tmp_path):
    train(rh.ProfilerHook(save_steps=1, output_dir=tmp_path), steps=3)
    assert profiled(tmp_path) == {2: [2], 3: [3]}


def test_ends_before_its_last_step_when_it_takes_too_long(train_op, fake_clock, tmp_path):
    hook = rh.ProfilerHook(4, output_dir=tmp_path, num_steps=10, max_secs=5)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(8):
            fake_clock.advance(3)
            sess.run(train_op)
        # The fourth step was at 12 seconds, and so the last one to begin in time was at 15.
        assert profiled(tmp_path) == {4: [4, 5]}


@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_times_are_those_of_the_steps(train, tmp_path):
    train(rh.ProfilerHook(save_steps=4, output_dir=tmp_path, num_steps=2), steps=5)
    (events,) = traces(tmp_path).values()
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events)
    first, second = sorted((e for e in events if "draw_" in e["name"]), key=lambda e: e["ts"])
    assert "draw_4" in first["name"]
    assert first["ts"] + first["dur"] <= second["ts"]


@pytest.mark.parametrize("engine", ["jax"])
def test_tensorboard_finds_the_profile(train, tmp_path):
    train(rh.ProfilerHook(save_steps=3, output_dir=tmp_path), steps=3)
    (path,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert path.parent.name == "step-3"
    assert b"draw_3" in path.read_bytes()


@pytest.mark.every_engine
def test_the_device_is_waited_for_before_and_after(train, graph, tmp_path, monkeypatch):
    happened = []
    run, wait = rh.Session.run, rh.Session.wait

    def recorded(name, function):
        def call(*args):
            happened.append(name)
            return function(*args)

        return call

    def start_profile(folder, step):
        happened.append("start")
        return lambda: happened.append("stop")

    monkeypatch.setattr(rh.Session, "run", recorded("run", run))
    monkeypatch.setattr(rh.Session, "wait", recorded("wait", wait))
    monkeypatch.setattr(graph.engine, "start_profile", start_profile)
    train(rh.ProfilerHook(save_steps=2, output_dir=tmp_path, num_steps=2), steps=4)
    window = ["wait", "start", "run", "run", "wait", "stop"]
    assert happened == ["run", *window, "wait", "start", "run", "wait", "stop"]


def is_profiled(engine):
    """Whether a profiler runs; JAX tells it only to one who starts another."""
    if engine == "python":
        return sys.getprofile() is not None
    if engine == "torch":
        return torch.autograd._profiler_enabled()
    try:
        jax.profiler.start_trace("never-written")
    except RuntimeError:
        return True
    jax.profiler.stop_trace()
    return False


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.every_engine
def test_a_profile_cut_short_by_an_error_is_written(train_op, tmp_path, engine, in_tmp_path):
    with pytest.raises(KeyError, match="the loop"):
        with rh.MonitoredSession(hooks=[rh.ProfilerHook(2, None, tmp_path, num_steps=9)]) as sess:
            for _ in range(3):
                sess.run(train_op)
            raise KeyError("the loop failed")
    assert profiled(tmp_path) == {2: [2, 3]}
    assert not is_profiled(engine)


@pytest.mark.every_engine
def test_a_session_lost_in_a_profile_ends_it(model, tmp_path, engine, in_tmp_path):
    with rh.MonitoredSession(hooks=[rh.ProfilerHook(4, None, tmp_path, num_steps=3)]) as sess:
        for _ in range(4):
            sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        for _ in range(2):
            sess.run(model.train_op)
        assert list(traces(tmp_path)) == [4]
        assert not is_profiled(engine)


@pytest.fixture
def other_profiler(engine, tmp_path):
    if engine == "jax":
        jax.profiler.start_trace(tmp_path / "other")
        yield
        jax.profiler.stop_trace()
        return
    if engine == "torch":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            yield
        return
    sys.setprofile(lambda *args: None)
    yield
    sys.setprofile(None)


@pytest.mark.every_engine
def test_a_profiler_that_runs_already_is_a_warning(train, other_profiler, tmp_path, caplog):
    train(rh.ProfilerHook(3, output_dir=tmp_path / "ours"), steps=7)
    warnings = [r.getMessage() for r in caplog.records if r.name == "runhooks"]
    assert len(warnings) == 2
    assert warnings[0].startswith("no profile of step 3: RuntimeError(")
    assert traces(tmp_path / "ours") == {}


@pytest.mark.every_engine
@pytest.mark.usefixtures("in_tmp_path")
def test_a_profile_that_cannot_be_written_is_a_warning(train, tmp_path, caplog, engine):
    (tmp_path / "file").write_text("in the way")
    train(rh.ProfilerHook(3, output_dir=tmp_path / "file"), steps=4)
    (warning,) = [r for r in caplog.records if r.name == "runhooks" and r.levelno > logging.INFO]
    assert "step 3" in warning.getMessage()
    assert not is_profiled(engine)


@pytest.mark.parametrize("engine", ["python"])
def test_a_profile_that_is_lost_is_a_warning(train_op, tmp_path, caplog, engine):
    folder = tmp_path / "profiles"
    with rh.MonitoredSession(hooks=[rh.ProfilerHook(2, None, folder, num_steps=2)]) as sess:
        sess.run(train_op)
        sess.run(train_op)
        folder.rmdir()
        sess.run(train_op)
        assert sess.global_step == 3
    assert [r.getMessage()[:42] for r in caplog.records] == [
        "the profile up to step 3 is lost: FileNotF"
    ]
    assert not is_profiled(engine)


def test_a_session_without_a_profiler_is_a_warning(train, graph, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(type(graph.engine), "start_profile", Framework.start_profile)
    train(rh.ProfilerHook(3, output_dir=tmp_path), steps=4)
    assert [r.getMessage() for r in caplog.records] == [
        "no profile of step 3: Python has no profiler"
    ]


def test_the_time_that_writing_takes_is_not_counted(
    train_op, graph, fake_clock, tmp_path, monkeypatch
):
    def start_profile(folder, step):
        fake_clock.advance(100)
        return lambda: fake_clock.advance(1000)

    monkeypatch.setattr(graph.engine, "start_profile", start_profile)
    hooks = [rh.ProfilerHook(3), rh.StepCounterHook(5, output_dir=tmp_path)]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(11):
            fake_clock.advance(0.5)
            sess.run(train_op)
    assert [(s.step, s.value) for s in read_events(tmp_path)] == [(6, 2.0), (11, 2.0)]
