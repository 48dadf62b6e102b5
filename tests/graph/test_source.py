"""Inputs that know their position: it is in each checkpoint, and comes back from it."""

import logging

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import FakeClock
from tests.graph.sources import Endless, Iterated, Iterator

SOURCES = {
    "iterable": Endless,
    "iterator": Iterator,
    "iterable of iterators": Iterated,
    "function that returns an iterable": lambda: lambda step: Endless(),
    "function that returns an iterator": lambda: lambda step: Iterator(),
    "function that returns the same iterable": lambda: (lambda it: lambda step: it)(Endless()),
}


@pytest.fixture(params=SOURCES)
def make_source(request):
    return SOURCES[request.param]


def numbers(sess, number, runs):
    return [int(sess.run(number)) for _ in range(runs)]


def program(make_source, engine="python"):
    """What a process builds when it starts: a session, and its input."""
    graph = rh.Graph(engine)
    with graph.as_default():
        return rh.Session(graph), rh.inputs(make_source(), name="batch") + 0


@pytest.mark.parametrize("drawn", [1, 4, 8])
def test_resumed_process_goes_on_where_the_checkpoint_was_saved(
    drawn, make_source, engine, tmp_path
):
    sess, number = program(make_source, engine)
    numbers(sess, number, drawn)
    path = rh.Saver().save(sess, tmp_path / "model.ckpt")
    expected = numbers(sess, number, 9)
    resumed, number = program(make_source, engine)
    rh.Saver().restore(resumed, path)
    assert numbers(resumed, number, 9) == expected


def test_position_is_saved_by_the_name_of_the_input(make_source):
    sess, number = program(make_source)
    assert sess.snapshot().states == {}
    sess.run(number)
    assert list(sess.snapshot().states) == ["inputs/batch"]


def test_position_survives_a_save_before_the_first_run(make_source):
    sess, number = program(make_source)
    numbers(sess, number, 3)
    snapshot = sess.snapshot()
    expected = numbers(sess, number, 5)
    for _ in range(2):
        sess, number = program(make_source)
        sess.load(snapshot)
        snapshot = sess.snapshot()
    assert numbers(sess, number, 5) == expected


@pytest.mark.parametrize("drawn", [0, 4])
def test_same_session_goes_back_to_a_snapshot_again_and_again(drawn, make_source):
    sess, number = program(make_source)
    numbers(sess, number, drawn)
    snapshot = sess.snapshot()
    expected = numbers(sess, number, 5)
    for _ in range(2):
        sess.load(snapshot)
        assert numbers(sess, number, 5) == expected


def test_session_without_a_checkpoint_begins_where_the_first_one_began(make_source):
    sess, number = program(make_source)
    expected = numbers(sess, number, 5)
    with rh.Session(sess.graph) as replacing:
        assert numbers(replacing, number, 5) == expected


def test_source_that_was_used_before_begins_where_it_then_was():
    loader = Endless()
    loader.load_state_dict({"epoch": 2, "index": 3})
    sess, number = program(lambda: loader)
    expected = numbers(sess, number, 2)
    assert expected[0] // 10 == 2
    with rh.Session(sess.graph) as replacing:
        assert numbers(replacing, number, 2) == expected


def test_snapshot_keeps_its_position_when_the_source_goes_on():
    class Live(Endless):
        def state_dict(self):
            return vars(self)

        def load_state_dict(self, state):
            self.__dict__ = state

    sess, number = program(Live)
    numbers(sess, number, 2)
    snapshot = sess.snapshot()
    expected = numbers(sess, number, 3)
    for _ in range(2):
        sess.load(snapshot)
        assert numbers(sess, number, 3) == expected


def test_state_is_loaded_before_the_source_is_iterated():
    class Prefetching(Endless):
        def __iter__(self):
            return iter([self.index])

    sess, number = program(Prefetching)
    snapshot = sess.snapshot()._replace(
        states={"inputs/batch": {"state": {"epoch": 0, "index": 5}}}
    )
    sess.load(snapshot)
    assert sess.run(number) == 5


def train(failing_at=(), checkpoint_dir=None):
    """A number that tells all batches of ten steps and their order; how often it was recovered."""
    failures = {at: rh.errors.AbortedError(None, None, "lost") for at in failing_at}

    def step(total, batch):
        if (failure := failures.pop(int(batch), None)) is not None:
            raise failure
        return 3 * total + batch

    with rh.Graph().as_default():
        total = rh.Variable(np.float64(0), name="total")
        new = total.assign(rh.call(step, total, rh.inputs(Endless())))
        train_op = rh.group(new, rh.train.create_global_step().assign_add(1))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir, save_checkpoint_steps=4, log_step_count_steps=None
        ) as sess:
            while sess.global_step < 10:
                sess.run(train_op)
            return sess.run(total, hooks=False), sess.recoveries


FIRST = next(iter(Endless()))


@pytest.mark.parametrize("failing_at", [[FIRST], [FIRST, 4, 11], [11]], ids=str)
@pytest.mark.parametrize("saving", [True, False])
def test_recovered_run_draws_again_what_it_drew_since_the_checkpoint(failing_at, saving, tmp_path):
    undisturbed, _ = train()
    recovered, recoveries = train(failing_at, str(tmp_path) if saving else None)
    assert recoveries == len(failing_at)
    assert recovered == undisturbed


def test_partial_load_leaves_the_input_at_its_beginning():
    sess, number = program(Endless)
    first = numbers(sess, number, 3)
    sess.load(sess.snapshot(), only=[])
    assert numbers(sess, number, 3) == first


def test_position_of_a_source_that_takes_none_is_told(caplog):
    sess, number = program(Endless)
    numbers(sess, number, 3)
    resumed, number = program(lambda: [1, 2])
    resumed.load(sess.snapshot())
    with caplog.at_level(logging.WARNING, "runhooks"):
        assert resumed.run(number) == 1
    assert "'batch'" in caplog.text


def test_error_of_loading_a_position_names_the_input_and_is_raised_again():
    class Changed(Endless):
        def load_state_dict(self, state):
            raise KeyError("shards")

    sess, number = program(Endless)
    sess.run(number)
    resumed, number = program(Changed)
    resumed.load(sess.snapshot())
    for _ in range(2):
        with pytest.raises(KeyError, match="shards") as caught:
            resumed.run(number)
        assert any("'batch'" in note for note in caught.value.__notes__)


def test_rewound_input_begins_anew_where_it_was_first_opened(make_source):
    sess, number = program(make_source)
    expected = numbers(sess, number, 4)
    resumed, same = program(make_source)
    resumed.load(sess.snapshot())
    resumed.rewind(same)
    assert numbers(resumed, same, 4) == expected
    for session, its_number in ((sess, number), (resumed, same)):
        session.rewind(its_number)
        assert numbers(session, its_number, 4) == expected


def test_beginning_is_that_of_the_first_process_wherever_the_source_of_a_later_one_began():
    later = Endless()
    later.load_state_dict({"epoch": 5, "index": 2})
    sess, number = program(Endless)
    expected = numbers(sess, number, 4)
    resumed, number = program(lambda: later)
    resumed.load(sess.snapshot())
    resumed.run(number)
    resumed.rewind(number)
    assert numbers(resumed, number, 4) == expected


def test_input_at_its_end_can_be_rewound(graph):
    number = rh.inputs([1, 2])
    with rh.Session(graph) as sess:
        for _ in range(2):
            assert numbers(sess, number, 2) == [1, 2]
            with pytest.raises(rh.errors.OutOfRangeError):
                sess.run(number)
            sess.rewind(number)


def test_rewinding_one_input_leaves_the_others(graph):
    evaluated, trained = rh.inputs(Iterator()), rh.inputs(Iterator())
    fed = rh.placeholder("fed")
    loss, evaluation = rh.call(np.add, trained, fed), {"sum": evaluated + fed}
    with rh.Session(graph) as sess:
        for expected in (1, 2):
            sess.rewind(evaluation)
            assert sess.run([evaluated, trained]) == [1, expected]
        sess.rewind()
        sess.rewind(loss, "inputs:0")
        assert sess.run([evaluated, trained]) == [1, 1]


def test_function_is_asked_for_the_step_at_which_it_is_rewound(graph):
    asked = rh.inputs(lambda step: [step])
    step = rh.train.create_global_step()
    with rh.Session(graph) as sess:
        assert sess.run(asked) == 0
        sess.run(step.assign_add(7))
        sess.rewind(asked)
        assert sess.run(asked) == 7


def test_what_cannot_be_fetched_cannot_be_rewound(graph):
    with rh.Session(graph) as sess, pytest.raises(ValueError, match="no_such"):
        sess.rewind("no_such:0")


def test_seconds_that_inputs_take_are_added_up_when_asked_for(graph):
    clock = FakeClock()

    def slow(step):
        for number in range(10):
            clock.advance(0.25)
            yield number
            clock.advance(100)

    before, after = rh.inputs(slow), rh.inputs(slow)
    with clock, rh.Session(graph) as sess:
        sess.run(before)
        assert sess.input_secs == 0
        sess.time_inputs()
        sess.time_inputs()
        assert sess.input_secs == 0
        sess.run(after)
        assert sess.input_secs == 0.25
        sess.rewind(before)
        sess.run([before, after])
        assert sess.input_secs == 0.25 + 0.25 + 100.25


def test_timed_input_ends_and_fails_as_it_did(graph, model):
    with rh.Session(graph) as sess:
        sess.time_inputs()
        model.faults.fail(OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            sess.run(model.train_op)
        sess.run(model.train_op)
        number = sess.global_step
    assert number == 1


@pytest.mark.parametrize(
    "make",
    [lambda: iter([1]), lambda: (it for it in [1]), lambda: lambda step: iter([1])],
    ids=["iterator", "generator", "function"],
)
def test_epochs_are_named_at_the_end_of_what_has_them_alone(graph, make):
    batch = rh.inputs(make(), name="data")
    with rh.MonitoredSession() as session:
        session.run(batch)
        session.run(batch)
    assert session.stop_reason == "the input 'data' has no more elements"
