import pytest

import runhooks as rh
from runhooks.hooks.base import not_training
from runhooks.testing import read_events


@pytest.fixture
def figures(tmp_path):
    """Reads what was written: by the last part of its tag, the values by step."""

    def figures(tag):
        full = f"throughput/{tag}"
        return {s.step: pytest.approx(s.value) for s in read_events(tmp_path) if s.tag == full}

    return figures


@pytest.fixture
def timed_train(model, fake_clock):
    """Makes ``steps`` steps of half a second each under a hook."""

    def train(hook, steps, run=None):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(steps):
                fake_clock.advance(0.5)
                sess.run(model.train_op if run is None else run)

    return train


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
