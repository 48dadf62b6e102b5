"""Hooks that measure: speed, throughput, the cost of hooks, memory."""

import logging

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runhooks as rh
from runhooks.hooks.base import not_training
from runhooks.testing import read_events


@pytest.fixture
def timed_train(model, fake_clock):
    """Makes ``steps`` steps of ``secs`` seconds each under hooks."""

    def train(*hooks, steps, secs=0.5, run=None):
        with rh.MonitoredSession(hooks=hooks) as sess:
            for _ in range(steps):
                fake_clock.advance(secs)
                sess.run(model.train_op if run is None else run)

    return train


# --- Steps per second


def test_writes_steps_per_second(timed_train, tmp_path):
    timed_train(rh.StepCounterHook(every_n_steps=10, output_dir=tmp_path), steps=35)
    assert [(s.step, s.tag, s.value) for s in read_events(tmp_path)] == [
        (step, "global_step/sec", 2.0) for step in (11, 21, 31)
    ]


def test_the_tag_is_the_name_of_the_global_step(graph, fake_clock, tmp_path):
    with rh.name_scope("model"):
        step = rh.train.create_global_step()
    add = step.assign_add(1)
    with rh.MonitoredSession(hooks=[rh.StepCounterHook(1, output_dir=tmp_path)]) as sess:
        for _ in range(2):
            fake_clock.advance(1)
            sess.run(add)
    assert [s.tag for s in read_events(tmp_path)] == [f"{step.op.name}/sec"]


def test_several_steps_a_run_are_all_counted(timed_train, model, tmp_path):
    jump = model.global_step.assign_add(4)
    timed_train(rh.StepCounterHook(10, output_dir=tmp_path), steps=8, run=jump)
    assert [(s.step, s.value) for s in read_events(tmp_path)] == [(16, 8.0), (28, 8.0)]


def test_a_step_that_is_never_increased_is_told_once(timed_train, model, caplog):
    timed_train(rh.StepCounterHook(every_n_steps=5), steps=30, run=model.loss)
    (warning,) = caplog.records
    assert "has not been increased" in warning.message
    assert "it has stayed at 0" in warning.message
    assert "global_step.assign_add(1)" in warning.message


def test_time_lost_in_a_recovery_is_not_counted(model, fake_clock, tmp_path):
    hook = rh.StepCounterHook(every_n_steps=2, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        fake_clock.advance(1000)
        model.faults.fail(rh.errors.AbortedError("lost"))
        for _ in range(3):
            sess.run(model.train_op)
            fake_clock.advance(1)
    assert [(s.step, s.value) for s in read_events(tmp_path)] == [(3, 1.0)]


# --- Time that is not training


def test_blocks_add_up_and_those_in_one_another_count_once(model, fake_clock):
    with rh.Session() as sess:
        assert sess.non_training_secs == 0
        with not_training(sess):
            fake_clock.advance(1)
            with not_training(sess):
                fake_clock.advance(2)
        with not_training(sess):
            fake_clock.advance(4)
        assert sess.non_training_secs == 7


class Evaluation(rh.SessionRunHook):
    """Takes 100 seconds at every fourth step."""

    def __init__(self, clock):
        self.clock = clock

    def after_run(self, run_context, run_values):
        if run_context.session.global_step % 4 == 0:
            with not_training(run_context.session):
                self.clock.advance(100)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("make", "steps"),
    [(rh.StepCounterHook, [7, 13, 19]), (rh.ThroughputHook, [6, 12, 18])],
)
def test_it_is_kept_out_of_the_speed(model, fake_clock, tmp_path, first, make, steps):
    hook, evaluation = make(every_n_steps=6, output_dir=tmp_path), Evaluation(fake_clock)
    with rh.MonitoredSession(hooks=[evaluation, hook] if first else [hook, evaluation]) as sess:
        for _ in range(20):
            fake_clock.advance(0.5)
            sess.run(model.train_op)
    speeds = [
        (scalar.step, scalar.value)
        for scalar in read_events(tmp_path)
        if scalar.tag in ("global_step/sec", "throughput/steps_per_sec")
    ]
    assert speeds == [(step, 2.0) for step in steps]


# --- Throughput


@pytest.fixture
def figures(tmp_path):
    """Reads what was written: by the last part of its tag, the values by step."""

    def figures(tag):
        full = f"throughput/{tag}"
        return {s.step: pytest.approx(s.value) for s in read_events(tmp_path) if s.tag == full}

    return figures


def test_writes_what_a_second_gets_done(timed_train, figures, tmp_path):
    timed_train(rh.ThroughputHook(32, 1000.5, every_n_steps=10, output_dir=tmp_path), steps=35)
    assert figures("steps_per_sec") == {10: 2.0, 20: 2.0, 30: 2.0}
    assert figures("examples_per_sec") == {10: 64.0, 20: 64.0, 30: 64.0}
    assert figures("tokens_per_sec") == {10: 2001.0, 20: 2001.0, 30: 2001.0}


@pytest.fixture
def batches(graph):
    """A step over batches of 1, 2, 3, ... examples; ``sizes`` is the tensor that says how many."""
    sizes = rh.inputs(lambda step: iter(range(step + 1, 10_000)), name="sizes")
    step = rh.train.create_global_step()
    examples = rh.call(lambda n: n * 1, sizes, name="examples")
    return rh.group(step.assign_add(1), examples.op), examples


@pytest.mark.every_engine
@pytest.mark.parametrize("by_name", [False, True])
def test_a_tensor_tells_how_many_there_were(batches, fake_clock, figures, tmp_path, by_name):
    train_op, examples = batches
    hook = rh.ThroughputHook(
        examples.name if by_name else examples, every_n_steps=3, output_dir=tmp_path
    )
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(8):
            fake_clock.advance(1)
            sess.run(train_op)
    assert figures("examples_per_sec") == {3: (2 + 3) / 2, 6: (4 + 5 + 6) / 3}


def test_very_many_runs_are_all_counted(batches, fake_clock, figures, tmp_path):
    train_op, examples = batches
    hook = rh.ThroughputHook(examples, every_n_steps=2500, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(2501):
            fake_clock.advance(1)
            sess.run(train_op)
    assert figures("examples_per_sec") == {2500: sum(range(2, 2501)) / 2499}


@pytest.mark.every_engine
def test_it_waits_for_the_device_at_its_steps_alone(
    timed_train, fake_clock, figures, tmp_path, monkeypatch
):
    waits = []
    original = rh.Session.wait

    def wait(self):
        waits.append(self.global_step)
        fake_clock.advance(15)  # what was queued takes its time
        original(self)

    monkeypatch.setattr(rh.Session, "wait", wait)
    timed_train(rh.ThroughputHook(4, every_n_steps=10, output_dir=tmp_path), steps=25)
    assert waits == [1, 10, 20]
    assert figures("steps_per_sec") == {10: 9 / 19.5, 20: 0.5}


def test_time_that_the_users_loader_takes(model, fake_clock, figures, tmp_path):
    def loader():
        for number in range(21):
            fake_clock.advance(0.25)
            yield number

    hook = rh.ThroughputHook(every_n_steps=10, output_dir=tmp_path)
    numbers = []
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for number in hook.timed(loader()):
            fake_clock.advance(0.75)
            sess.run(model.train_op)
            numbers.append(number)
    assert numbers == list(range(21))
    assert figures("input_wait") == {10: 0.25, 20: 0.25}


@pytest.fixture
def slow_input(graph, fake_clock):
    """A step whose input takes a quarter of a second."""

    def slow(step):
        while True:
            fake_clock.advance(0.25)
            yield step

    batch = rh.inputs(slow, name="batch")
    step = rh.train.create_global_step()
    return rh.group(step.assign_add(1), rh.call(lambda x: x, batch).op)


def test_time_that_the_graphs_inputs_take(slow_input, fake_clock, figures, tmp_path):
    hook = rh.ThroughputHook(every_n_steps=10, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(21):
            fake_clock.advance(1)
            sess.run(slow_input)
    assert figures("input_wait") == {10: 0.2, 20: 0.2}


def test_inputs_drawn_apart_from_training_are_no_wait(slow_input, fake_clock, figures, tmp_path):
    hook = rh.ThroughputHook(every_n_steps=2, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            fake_clock.advance(0.75)
            sess.run(slow_input)

            def evaluate(step_context):
                with not_training(step_context.session):
                    step_context.session.run("batch:0")

            sess.run_step_fn(evaluate)
    assert figures("input_wait") == {2: 0.25}


# --- The cost of hooks


class Slow(rh.SessionRunHook):
    """Takes ``before`` and ``after`` seconds in every run."""

    def __init__(self, clock, before=0.0, after=0.0):
        self.clock, self.before, self.after = clock, before, after

    def before_run(self, run_context):
        self.clock.advance(self.before)

    def after_run(self, run_context, run_values):
        self.clock.advance(self.after)


class EveryFourth(Slow):
    """The same once in four runs."""

    def next_due(self):
        return rh.Due(runs=4)

    before_run, after_run = Slow.before_run, Slow.after_run


def test_tells_what_each_hook_costs(timed_train, fake_clock):
    hook, slow = rh.HookTimesHook(every_n_steps=10), Slow(fake_clock, after=3)
    slow.hook_name = "the slow one"
    timed_train(Slow(fake_clock, 0.25, 0.75), hook, slow, steps=11, secs=4)
    assert list(hook.times)[:2] == ["the slow one", "Slow"]
    assert hook.times["Slow"] == pytest.approx((1e6, 100 * 1 / 8))
    assert hook.times["the slow one"] == pytest.approx((3e6, 100 * 3 / 8))
    assert hook.times["HookTimesHook"] == (0, 0)


def test_hooks_that_slept_cost_nothing(timed_train, fake_clock):
    hook = rh.HookTimesHook(every_n_steps=8)
    sleeper = rh.TimeLimitHook(1000)
    timed_train(hook, EveryFourth(fake_clock, after=2), sleeper, steps=8, secs=4)
    assert hook.times["EveryFourth"].us_per_step == pytest.approx(2e6 / 7)
    assert "TimeLimitHook" not in hook.times


def test_each_table_is_of_the_time_since_the_one_before(timed_train, fake_clock, tmp_path):
    class Growing(Slow):
        def after_run(self, run_context, run_values):
            self.clock.advance(run_context.session.global_step)

    hook = rh.HookTimesHook(every_n_steps=2, output_dir=tmp_path)
    timed_train(Growing(fake_clock), hook, steps=4, secs=4)
    written = [(s.step, s.value) for s in read_events(tmp_path) if "Growing" in s.tag]
    assert written == [(2, pytest.approx(2e6)), (4, pytest.approx(3.5e6))]


def test_writes_and_logs_them(timed_train, fake_clock, caplog, tmp_path):
    caplog.set_level(logging.INFO, logger="runhooks")
    hook = rh.HookTimesHook(every_n_steps=2, output_dir=tmp_path)
    timed_train(hook, Slow(fake_clock, after=4), steps=3, secs=4)
    assert {s.tag: s.value for s in read_events(tmp_path)} == {
        "hook_times/Slow_us_per_step": 4e6,
        "hook_times/HookTimesHook_us_per_step": 0,
    }
    assert [" ".join(line.split()) for line in caplog.messages[0].splitlines()] == [
        "the cost of each hook, at step 2:",
        "Slow 4000000.0 us/step 50.0 %",
        "HookTimesHook 0.0 us/step 0.0 %",
    ]


# --- Memory


@pytest.mark.every_engine
def test_writes_what_the_devices_say(train, graph, monkeypatch, tmp_path):
    said = {"cuda:0/allocated_bytes": 0, "cuda:1/allocated_bytes": 7}

    def memory():
        said["cuda:0/allocated_bytes"] += 10
        return said

    monkeypatch.setattr(graph.engine, "memory", memory)
    train(rh.MemoryHook(3, tmp_path), steps=7)
    written = [(event.step, event.tag, event.value) for event in read_events(tmp_path)]
    assert written == [
        (3, "memory/cuda:0/allocated_bytes", 20.0),  # the first time was when the session started
        (3, "memory/cuda:1/allocated_bytes", 7.0),
        (6, "memory/cuda:0/allocated_bytes", 30.0),
        (6, "memory/cuda:1/allocated_bytes", 7.0),
    ]


@pytest.mark.every_engine
def test_where_no_device_tells_it_says_so_and_sleeps(train, graph, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(graph.engine, "memory", dict)
    caplog.set_level(logging.INFO, "runhooks")
    with pytest.raises(ValueError, match="output_dir or summary_writer must be given, got neither"):
        rh.MemoryHook(1)
    hook = rh.MemoryHook(1, tmp_path)
    train(hook, steps=3)
    assert sum("MemoryHook writes nothing" in message for message in caplog.messages) == 1
    assert read_events(tmp_path) == []
    assert hook.next_due() == rh.Due()


def test_gpu_in_use_is_in_it():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    kept = torch.ones(1024, device="cuda")
    memory = rh.Graph("torch").engine.memory()
    assert memory["cuda:0/allocated_bytes"] >= kept.nbytes


def curve(directory, tag):
    """What TensorBoard shows: pairs of step and value."""
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_no_curve_folds_back_at_a_recovery(model, fake_clock, tmp_path):
    rh.summary.scalar("loss", model.loss)
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path / "model",
        summary_dir=tmp_path / "board",
        save_checkpoint_steps=2,
        save_summaries_steps=1,
        log_step_count_steps=1,
    ) as sess:
        for run in range(9):
            if run in (5, 8):
                model.faults.fail(rh.errors.AbortedError("lost"))
            fake_clock.advance(0.5)
            sess.run(model.train_op)
    assert sess.recoveries == 2
    # Steps 5 and 7 are made twice; the curve holds what came of them last.
    assert curve(tmp_path / "board", "loss") == [(step + 1, 2.0 * step) for step in range(7)]
    rates = [step for step, _ in curve(tmp_path / "board", "global_step/sec")]
    assert rates == sorted(set(rates))
