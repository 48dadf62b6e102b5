import logging
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def lines(caplog):
    """The lines logged so far, without their times."""
    caplog.set_level(logging.INFO, logger="runhooks")

    def lines():
        return [
            re.sub(r" \([\d.]+ sec\)$", "", record.getMessage())
            for record in caplog.records
            if " = " in record.getMessage()
        ]

    return lines


def test_an_unknown_name_is_told_before_the_session_exists(model):
    with pytest.raises(ValueError, match="loess"):
        rh.MonitoredSession(hooks=[rh.LoggingTensorHook(["loess:0"], every_n_iter=1)])


def test_counts_runs_and_not_steps(model, lines):
    hook = rh.LoggingTensorHook({"loss": model.loss}, every_n_iter=3)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(4):
            sess.run(model.train_op)
            sess.run(model.weights)
    assert lines() == ["loss = 0.0", "loss = 4.0", "loss = 6.0"]


def test_a_dict_is_logged_in_the_order_of_its_labels(train, model, lines):
    train(rh.LoggingTensorHook({"w": model.weights, "a": "loss:0"}, every_n_iter=9), steps=1)
    assert lines() == ["a = 0.0, w = [0. 0.]"]


def test_a_formatter_makes_the_line(train, model, lines):
    hook = rh.LoggingTensorHook(
        {"loss": model.loss}, every_n_iter=9, formatter=lambda values: f"L = {values['loss']:.3f} %"
    )
    train(hook, steps=1)
    assert lines() == ["L = 0.000 %"]


def test_a_resumed_run_logs_at_the_steps_of_an_undisturbed_one(train, lines, tmp_path):
    def hooks():
        return (
            rh.LoggingTensorHook(["loss:0"], every_n_iter=10),
            rh.CheckpointSaverHook(tmp_path, save_steps=100),
        )

    train(*hooks(), steps=14)
    train(*hooks(), steps=10, checkpoint_dir=str(tmp_path))
    assert lines() == ["loss:0 = 0.0", "loss:0 = 20.0", "loss:0 = 40.0"]


def test_a_run_that_failed_does_not_count(model, lines):
    hook = rh.LoggingTensorHook({"loss": model.loss}, every_n_iter=3)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for fails in (False, False, False, True, False, False):
            if not fails:
                sess.run(model.train_op)
                continue
            model.faults.fail(ValueError("a bad batch"))
            with pytest.raises(ValueError, match="a bad batch"):
                sess.run(model.train_op)
    assert lines() == ["loss = 0.0", "loss = 6.0"]


def test_operation_without_a_value_is_refused_at_once(model):
    hook = rh.LoggingTensorHook({"train": "train_op"}, every_n_iter=1)
    with pytest.raises(ValueError, match="train_op"):
        rh.MonitoredSession(hooks=[hook])


@pytest.mark.every_engine
def test_float32_is_logged_with_its_own_digits(graph, caplog):
    caplog.set_level(logging.INFO, logger="runhooks")
    tenth = rh.Variable(np.float32(0.1), name="tenth")
    with rh.MonitoredSession(hooks=[rh.LoggingTensorHook([tenth], every_n_iter=1)]) as sess:
        sess.run(tenth)
    assert caplog.messages[0] == "tenth:0 = 0.1"


def test_a_recovered_run_counts_its_own_runs_and_its_time_goes_on(
    model, caplog, fake_clock, tmp_path
):
    caplog.set_level(logging.INFO, logger="runhooks")
    step = model.global_step
    op = rh.group(model.train_op, step.assign_add(2))  # steps: three a run
    hooks = [rh.LoggingTensorHook({"s": step}, every_n_iter=10)]
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, hooks=hooks, save_checkpoint_steps=3, log_step_count_steps=None
    ) as sess:
        for run in range(31):
            if run == 14:
                model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(op)
            fake_clock.advance(1)
    assert sess.recoveries == 1
    assert [text for text in caplog.messages if text.startswith("s = ")] == [
        "s = 0",
        *("s = 30 (10.000 sec)", "s = 60 (10.000 sec)", "s = 90 (10.000 sec)"),
    ]


@pytest.mark.parametrize("arguments", [{"at_end": True}, {"trigger": rh.Trigger(at_end=True)}])
def test_what_the_end_cannot_compute_is_told_at_the_start(model, arguments):
    fed = rh.placeholder("fed")
    with pytest.raises(ValueError, match="at_end: .*'fed:0'"):
        rh.MonitoredSession(hooks=[rh.LoggingTensorHook([fed], **arguments)])
    with pytest.raises(ValueError, match="at_end: .*'batch'"):
        rh.MonitoredSession(hooks=[rh.LoggingTensorHook(["batch:0"], **arguments)])


@pytest.mark.parametrize(
    "cadence",
    [{"every_n_iter": 3}, {"every_n_secs": 0.0005}, {"trigger": rh.Trigger(every_steps=3)}],
)
def test_threads_may_share_the_session(graph, lines, cadence):
    step = rh.train.create_global_step()
    add = step.assign_add(1)
    hook = rh.LoggingTensorHook({"step": step}, **cadence)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with rh.MonitoredSession(hooks=[hook]) as sess, ThreadPoolExecutor(8) as threads:

            def work():
                for _ in range(100):
                    sess.run(add)

            for done in [threads.submit(work) for _ in range(8)]:
                done.result()
            assert sess.global_step == 800
    finally:
        sys.setswitchinterval(before)
    assert all(line.startswith("step = ") for line in lines())
    assert lines()


def test_a_summary_is_refused(graph):
    rh.train.create_global_step()
    summary = rh.summary.scalar("shown", rh.call(lambda: 1.0))
    for hook in (rh.LoggingTensorHook([summary], 1), rh.ProgressHook(10, [summary])):
        with pytest.raises(ValueError, match="tensors must not be a summary, got 'shown:0'"):
            rh.MonitoredSession(hooks=[hook])


@pytest.mark.parametrize("cadence", [{"every_n_iter": 2}, {"trigger": rh.Trigger(every_steps=2)}])
def test_the_first_line_of_a_resumed_run_has_no_time(model, caplog, fake_clock, tmp_path, cadence):
    caplog.set_level(logging.INFO, logger="runhooks")
    for _ in range(2):
        hook = rh.LoggingTensorHook({"s": model.global_step}, **cadence)
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]) as sess:
            for _ in range(4):
                sess.run(model.train_op)
                fake_clock.advance(1)
    lines = [text for text in caplog.messages if text.startswith("s = ")]
    assert ["sec" in line for line in lines] == [False, True, False, True]
