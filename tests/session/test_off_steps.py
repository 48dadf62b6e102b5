"""Off-steps are free: with five hooks, none of them due, a run is the caller's run and no more."""

import sys

import jax
import numpy as np
import pytest

import runhooks as rh
from runhooks.graph import nest

STEPS = 50


@pytest.fixture
def asked(monkeypatch):
    """The fetches of every run of a raw session, in order."""
    fetches = []
    run = rh.Session.run

    def recorded(self, *args, **kwargs):
        fetches.append(args[0] if args else kwargs["fetches"])
        return run(self, *args, **kwargs)

    monkeypatch.setattr(rh.Session, "run", recorded)
    return fetches


@pytest.fixture
def sess(graph, model, tmp_path, asked):
    """A session with the five built-in hooks, each of which has had its first step."""
    rh.summary.scalar("loss", model.loss)
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path,
        save_checkpoint_steps=STEPS,
        save_summaries_steps=STEPS,
        log_step_count_steps=STEPS,
        hooks=[
            rh.StopAtStepHook(last_step=1000),
            rh.LoggingTensorHook({"loss": model.loss}, every_n_iter=STEPS),
        ],
    ) as sess:
        for _ in range(3):
            sess.run(model.train_op)
        asked.clear()
        yield sess


@pytest.mark.every_engine
def test_off_step_is_one_raw_run_of_the_callers_fetches(sess, model, asked):
    for _ in range(10):
        sess.run(model.train_op)
    assert [[*nest.leaves(fetches)] for fetches in asked] == [[model.train_op]] * 10


@pytest.mark.every_engine
def test_due_step_asks_once_for_all_hooks(sess, model, asked):
    while sess.global_step < STEPS + 2:
        sess.run(model.train_op)
    sizes = [len([*nest.leaves(fetches)]) for fetches in asked]
    assert len(asked) == STEPS + 2 - 3
    assert sum(size > 1 for size in sizes) in (1, 2)
    assert sum(sizes) - len(sizes) == 2


def test_off_step_computes_nothing_for_hooks(tmp_path):
    computed = []
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step()
        loss = rh.call(lambda s: computed.append(int(s)) or 1.0, step, name="loss")
        rh.summary.scalar("loss", loss)
        train_op = step.assign_add(1)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_summaries_steps=10, log_step_count_steps=10
        ) as sess:
            for _ in range(25):
                sess.run(train_op)
    assert computed == [0, 10, 20]


def calls_during(run):
    """The Python and C functions called, as ``(file, name)`` and ``(module, name)``."""
    calls = []

    def profile(frame, event, arg):
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))
        elif event == "c_call":
            calls.append((str(arg.__module__), arg.__name__))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("engine", ["jax"])
def test_off_step_reads_nothing_from_the_device(sess, model):
    calls = calls_during(lambda: sess.run(model.train_op))
    where = [f"{place}:{name}" for place, name in calls]
    # Every way to the value of a device array goes through one of these.
    assert [w for w in where if "jax/_src/array.py" in w] == []
    assert [w for w in where if w.startswith("numpy:")] == []
    assert [w for w in where if "block_until_ready" in w or "device_get" in w] == []


@pytest.mark.parametrize("engine", ["jax"])
def test_off_step_compiles_nothing(sess, model):
    events = []

    def listen(event, duration, **kwargs):
        if "compile" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    for _ in range(10):
        sess.run(model.train_op)
    assert events == []


def test_off_step_moves_nothing_between_host_and_device(tmp_path):
    with rh.Graph(engine="jax").as_default():
        v = rh.Variable(np.ones(3, np.float32), name="v")
        loss = rh.call(lambda t: t.sum(), v)
        rh.summary.scalar("loss", loss)
        step = rh.train.get_or_create_global_step()
        train_op = rh.group(v.assign(rh.call(lambda t: t * 2, v)), step.assign_add(1))
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
            for _ in range(2):
                sess.run([train_op, loss])
            with jax.transfer_guard("disallow"):
                for _ in range(10):
                    sess.run([train_op, loss])
