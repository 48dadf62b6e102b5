import io
import logging
import types

import ml_dtypes
import numpy as np
import pytest

import runhooks as rh
from runhooks.hooks.progress import progress_line


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screens(self):
        """What was to be seen, one after the other."""
        return [
            text.removesuffix("\x1b[K") for text in self.getvalue().rstrip("\n").split("\r")[1:]
        ]


@pytest.fixture
def timed_train(model, fake_clock):
    """Makes ``steps`` steps of ``secs`` seconds each under a hook."""

    def train(hook, steps, secs):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(steps):
                fake_clock.advance(secs)
                sess.run(model.train_op)

    return train


class Faulty:
    shape = (1,)

    def __repr__(self):
        raise RuntimeError("not even this")


VALUES = [
    ("loss", np.float32(0.123456)),
    ("epoch", 3),
    ("rate", np.array([1e-4])),
    ("half", np.array([0.123456], ml_dtypes.bfloat16)),
    ("complex", np.complex64(1 + 2j)),
    ("lines", "a\nb"),
    ("array", np.eye(2)),
    ("tree", {"a": [1, 2]}),
    ("faulty", Faulty()),
    ("huge", 10**5000),
]
SHOWN = (
    "  loss 0.1235  epoch 3  rate 0.0001  half 0.1235  complex (1+2j)  lines a b"
    "  array [[1. 0.] [0. 1.]]  tree {'a': [1, 2]}  faulty <Faulty>  huge <int>"
)


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ((500, 2000, 250.0, (), 8), " 25% [##------] step 500/2000  250 steps/s  0:00:06 left"),
        ((500, None, None, (), 8), "step 500"),
        ((500, 2000, None, (), 0), " 25% step 500/2000"),
        ((2100, 2000, 9.0, (), 2), "step 2100  9 steps/s"),
        ((2000, 2000, 9.0, (), 2), "100% [##] step 2000/2000  9 steps/s"),
        ((0, 360_000, 1.0, (), 0), "  0% step 0/360000  1 steps/s  100:00:00 left"),
        ((1, None, 2.5, VALUES, 0), f"step 1  2.5 steps/s{SHOWN}"),
    ],
    ids=range(7),
)
def test_a_line_tells_what_is_known(known, line):
    assert progress_line(*known) == line


def test_elsewhere_a_line_every_few_seconds_and_at_the_end(timed_train):
    stream = io.StringIO()
    timed_train(rh.ProgressHook(20, stream=stream), steps=20, secs=0.5)
    assert stream.getvalue().splitlines() == [
        "  5% step 1/20",
        " 55% step 11/20",
        "100% step 20/20  2 steps/s",
    ]


class Lines:
    """What a program may put in the place of a file."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_what_writes_and_flushes_will_do(timed_train, monkeypatch):
    given, stderr = Lines(), Lines()
    timed_train(rh.ProgressHook(2, stream=given), steps=2, secs=0.5)
    monkeypatch.setattr("sys.stderr", stderr)
    timed_train(rh.ProgressHook(4), steps=2, secs=0.5)
    assert given.text.splitlines()[-1].startswith("100% step 2/2")
    assert stderr.text.splitlines()[-1].startswith(" 50% step 2/4")


@pytest.mark.parametrize("stream", ["a.txt", types.SimpleNamespace(write=print)])
def test_what_does_not_is_refused(stream):
    with pytest.raises(TypeError, match="stream must be an open text file"):
        rh.ProgressHook(stream=stream)


class Batches:
    """Ten numbers in batches of ``size``."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return -(-10 // self.size)

    def __iter__(self):
        return iter(range(0, 10, self.size))


def epoch_lines(data, folder, fake_clock, stop_at=10**9, last_step=None, **source):
    """Trains, and returns what is shown, a line after each run."""
    stream = io.StringIO()
    hooks = [
        rh.ProgressHook(last_step, stream=stream, every_n_steps=1),
        rh.StopAtStepHook(last_step=stop_at),
    ]
    graph = rh.graph(lambda total, number: total + number, total=0, data=data, **source)
    with graph.as_default():
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                fake_clock.advance(6)
                session.run("train_op")
    return [line.partition("  ")[0] for line in stream.getvalue().splitlines()]


def test_without_a_number_it_goes_to_the_end_of_the_epochs(tmp_path, fake_clock):
    lines = epoch_lines(Batches(4), tmp_path, fake_clock, stop_at=4, epochs=2)
    assert lines == [f" {p}% step {i}/6" for p, i in ((17, 1), (33, 2), (50, 3), (67, 4), (67, 4))]
    # The rest with batches of another size: 2 of 5 are left of the second epoch.
    lines = epoch_lines(Batches(5), tmp_path, fake_clock, epochs=2)
    assert lines == ["100% step 5/5"] * 2


@pytest.mark.parametrize(
    "source",
    [
        {"data": Batches(5), "epochs": None},
        {"data": lambda step: Batches(5)},
        {"data": map(int, Batches(5))},
        {"data": lambda step: Batches(5), "steps_per_epoch": 2},
    ],
    ids=["no end", "a function", "an iterator", "steps per epoch"],
)
def test_without_a_number_and_an_end_there_is_none(source, fake_clock):
    assert epoch_lines(folder=None, fake_clock=fake_clock, stop_at=1, **source) == ["step 1"] * 2


def test_a_number_comes_before_the_epochs(fake_clock):
    lines = epoch_lines(Batches(5), None, fake_clock, stop_at=1, last_step=4, epochs=5)
    assert lines == [" 25% step 1/4"] * 2


def test_on_a_terminal_a_bar_that_is_written_over(timed_train):
    stream = Terminal()
    timed_train(rh.ProgressHook(4, stream=stream), steps=4, secs=0.5)
    assert stream.screens() == [
        " 25% [######------------------] step 1/4",
        " 50% [############------------] step 2/4",
        " 75% [##################------] step 3/4  2 steps/s  0:00:00 left",
        "100% [########################] step 4/4  2 steps/s",
        "100% [########################] step 4/4  2 steps/s",
    ]
    assert stream.getvalue().endswith("\n")


def test_a_log_record_gets_a_line_of_its_own_on_a_terminal(timed_train):
    stream = Terminal()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        timed_train(LoggingProgressHook(4, stream=stream), steps=4, secs=0.5)
    finally:
        logging.getLogger().removeHandler(handler)
    # A terminal shows of each line what follows the last return to its start.
    lines = [
        line.rpartition("\r")[2].replace("\x1b[K", "") for line in stream.getvalue().split("\n")
    ]
    assert lines.count("a record") == 4


class LoggingProgressHook(rh.ProgressHook):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        logging.getLogger("elsewhere").warning("a record")


def test_shows_the_latest_tensors(timed_train, model):
    stream = io.StringIO()
    hook = rh.ProgressHook(tensors={"loss": model.loss}, every_n_steps=4, stream=stream)
    timed_train(hook, steps=12, secs=1)
    assert [line.rpartition("  ")[2] for line in stream.getvalue().splitlines()] == [
        "loss 0",
        "loss 6",
        "loss 14",
        "loss 22",
    ]


def test_tensors_are_fetched_by_steps_and_never_by_time(tmp_path, fake_clock):
    computed = []
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step()
        value = rh.call(lambda s: computed.append(int(s)) or 1.0, step, name="value")
        add = step.assign_add(1)

        def train(steps, secs):
            hooks = [
                rh.ProgressHook(tensors=[value], every_n_steps=10, stream=io.StringIO()),
                rh.CheckpointSaverHook(tmp_path, save_steps=1000),
            ]
            with rh.SingularMonitoredSession(hooks=hooks, checkpoint_dir=str(tmp_path)) as sess:
                for _ in range(steps):
                    fake_clock.advance(secs)
                    sess.run(add)

        train(14, secs=100)
        train(10, secs=0.001)
    assert computed == [0, 9, 19]


def test_a_failure_leaves_the_bar_and_begins_a_line_of_its_own(model):
    stream = Terminal()
    with pytest.raises(ValueError, match="oops"):
        with rh.MonitoredSession(hooks=[rh.ProgressHook(4, stream=stream)]) as sess:
            sess.run(model.train_op)
            raise ValueError("oops")
    assert stream.getvalue().endswith("step 1/4\x1b[K\n")
