"""Hooks of one job each: feeds, values at the end, waiting for others, states from elsewhere."""

import logging
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import runhooks as rh


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: rh.FeedFnHook({}), "feed_fn"),
        (lambda: rh.FinalOpsHook("loss:0", 5), "final_ops_feed_dict"),
    ],
)
def test_an_argument_of_another_kind_is_refused(make, name):
    with pytest.raises(TypeError, match=name):
        make()


def test_what_is_fed_in_every_run(graph):
    x = rh.placeholder("x")
    values = iter([1.0, 2.0, 3.0])
    hook = rh.FeedFnHook(lambda: {x: next(values)})
    doubled = x * 2.0
    seen = []
    with rh.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            seen.append(float(session.run(doubled)))
    assert seen == [2.0, 4.0, 6.0]  # and the end of what it feeds is a good end


def test_what_the_caller_feeds_as_well_is_refused(graph):
    x = rh.placeholder("x")
    with rh.MonitoredSession(hooks=[rh.FeedFnHook(lambda: {x: 1.0})]) as session:
        with pytest.raises(RuntimeError, match="'x:0' .*FeedFnHook"):
            session.run(x, feed_dict={x: 1.0})


# --- Values at the end


@pytest.mark.every_engine
def test_values_at_the_end(train, model):
    hook = rh.FinalOpsHook({"loss": model.loss, "steps": "global_step:0"})
    assert hook.final_ops_values is None
    train(hook, steps=3)
    assert hook.final_ops_values == {"loss": 6.0, "steps": 3}


def test_a_loop_that_fails_has_no_values_of_the_one_before(train, model):
    hook = rh.FinalOpsHook(model.loss)
    train(hook, steps=3)
    assert hook.final_ops_values == 6.0
    model.faults.fail(KeyError("broken"))
    with pytest.raises(KeyError):
        train(hook, steps=3)
    assert hook.final_ops_values is None


def test_feeds_of_the_end(train, graph, model):
    x = rh.placeholder("x")
    hook = rh.FinalOpsHook([x * 2.0], final_ops_feed_dict={x: 4.0})
    train(hook, steps=1)
    assert hook.final_ops_values == [8.0]


def test_ops_that_draw_from_an_input_at_its_end(graph, caplog):
    hook = rh.FinalOpsHook(rh.inputs([], name="empty"))
    with rh.Session() as session, pytest.raises(rh.errors.OutOfRangeError, match="'empty'"):
        hook.end(session)
    (record,) = [it for it in caplog.records if "FinalOpsHook" in it.message]
    assert record.levelno == logging.WARNING
    assert "'empty'" in record.message


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(("losss:0",), "losss:0"), ((5,), "5"), (("loss:0", {"nosuch:0": 1}), "nosuch")],
    ids=["unknown", "number", "unknown feed"],
)
def test_mistake_is_told_when_the_session_is_made(model, arguments, name):
    with pytest.raises((TypeError, ValueError), match=name) as caught:
        rh.MonitoredSession(hooks=[rh.FinalOpsHook(*arguments)])
    assert any("FinalOpsHook" in note for note in caught.value.__notes__)


# --- Waiting for others


@pytest.fixture
def add(graph):
    return rh.train.get_or_create_global_step().assign_add(1)


class OtherWorker(logging.Handler):
    """Makes a thousand steps whenever somebody is seen to wait, of which it keeps the words."""

    def __init__(self, add):
        super().__init__()
        self.add, self.heard = add, []

    def emit(self, record):
        self.heard.append(record.getMessage())
        for _ in range(1000):
            self.session.run(self.add)


def test_waits_for_the_steps_of_others(add, caplog):
    other = OtherWorker(add)
    logger = logging.getLogger("runhooks")
    caplog.set_level("INFO", "runhooks")
    with rh.SingularMonitoredSession(hooks=[rh.GlobalStepWaiterHook(1500)]) as sess:
        other.session = sess.raw_session()
        logger.addHandler(other)
        assert sess.run("global_step:0") == 2000
        logger.removeHandler(other)
    assert other.heard == [
        "waiting for the global step to reach 1500: it is 0",
        "waiting for the global step to reach 1500: it is 1000",
    ]


@pytest.mark.parametrize("wait_until_step", [-1, 0])
def test_nothing_to_wait_for(train, caplog, wait_until_step):
    caplog.set_level("INFO", "runhooks")
    assert train(rh.GlobalStepWaiterHook(wait_until_step), steps=2) == 2
    assert not any("waiting" in line for line in caplog.messages)


def test_a_stop_of_the_coordinator_ends_the_wait(add):
    class Stop(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            thread = threading.Thread(target=coord.request_stop)
            thread.start()
            thread.join()

    with rh.MonitoredSession(hooks=[rh.GlobalStepWaiterHook(10), Stop()]) as sess:
        assert sess.run("global_step:0") == 0


def test_it_sleeps_once_it_has_waited(add, monkeypatch):
    hook = rh.GlobalStepWaiterHook(1)
    calls = []
    before_run = hook.before_run
    monkeypatch.setattr(
        rh.GlobalStepWaiterHook,
        "before_run",
        lambda self, context: calls.append(context) or before_run(context),
    )
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(add, hooks=False)
        for _ in range(3):
            sess.run(add)
    assert len(calls) == 1


# --- States from elsewhere


class Random:
    """A generator of the user's own, as a state."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def state_dict(self):
        return {"state": self.random.getstate()}

    def load_state_dict(self, state):
        self.random.setstate(state["state"])


class Batches:
    """A loader of the user's own: it hands out the very dict that it goes on with."""

    def __init__(self):
        self.position = {"index": 0}

    def __next__(self):
        self.position["index"] += 1
        return self.position["index"]

    def state_dict(self):
        return self.position

    def load_state_dict(self, state):
        self.position = state


def train_with_both(folder, steps):
    """What ``steps`` steps see of both, in a program that is resumed from ``folder``."""
    noise, batches = Random(3), Batches()
    hook = rh.SavedStateHook(noise=noise, batches=batches)
    with rh.Graph().as_default():
        batch = rh.placeholder("batch")
        train_op = rh.group(batch + 0, rh.train.create_global_step().assign_add(1))
        with rh.MonitoredTrainingSession(checkpoint_dir=str(folder), hooks=[hook]) as sess:
            seen = []
            for _ in range(steps):
                seen.append((next(batches), noise.random.random()))
                sess.run(train_op, {batch: seen[-1][0]})
            return seen


def test_resumed_program_goes_on_with_the_states_of_its_checkpoint(tmp_path):
    undisturbed = train_with_both(tmp_path / "undisturbed", 6)
    assert (
        train_with_both(tmp_path / "resumed", 2) + train_with_both(tmp_path / "resumed", 4)
        == undisturbed
    )


def test_hooks_of_the_same_part_are_refused(graph):
    hooks = [rh.SavedStateHook(batches=Batches()), rh.SavedStateHook(batches=Batches())]
    with pytest.raises(ValueError, match="'batches'"):
        rh.MonitoredSession(hooks=hooks)


def checkpoint_of(folder, *hooks):
    """Make a step under ``hooks`` in a program of its own."""
    with rh.Graph().as_default():
        train_op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as sess:
            sess.run(train_op)
    return folder


def test_parts_are_known_by_name_whatever_the_order_of_the_hooks(tmp_path):
    one, two = Batches(), Batches()
    next(one), next(two), next(two)
    checkpoint_of(tmp_path, rh.SavedStateHook(one=one), rh.SavedStateHook(two=two))
    one, two, new = Batches(), Batches(), Batches()
    hooks = [rh.SavedStateHook(new=new), rh.SavedStateHook(two=two), rh.SavedStateHook(one=one)]
    checkpoint_of(tmp_path, *hooks)
    assert [next(one), next(two), next(new)] == [2, 3, 1]


@pytest.mark.parametrize(
    "part", [object(), None, [], iter([1])], ids=["object", "None", "list", "iterator"]
)
def test_part_without_a_state_is_refused_by_its_name(part):
    with pytest.raises(TypeError, match=r"loader.*state_dict"):
        rh.SavedStateHook(noise=Random(0), loader=part)


def test_part_that_the_checkpoint_does_not_know_stays_as_it_is_and_is_told(
    tmp_path, caplog: pytest.LogCaptureFixture
):
    batches, others = Batches(), Batches()
    checkpoint_of(tmp_path, rh.SavedStateHook(batches=batches))
    next(batches), next(others)
    with caplog.at_level(logging.WARNING, "runhooks"):
        checkpoint_of(tmp_path, rh.SavedStateHook(batches=batches, others=others))
    assert (next(batches), next(others)) == (1, 2)
    assert "for others" in caplog.text


@pytest.mark.parametrize("make", [dict, SimpleNamespace])
def test_content_of_a_dict_goes_on_in_place(make, tmp_path):
    def kept(it):
        return it if make is dict else vars(it)

    loop = make(best=1.5, name="first", seen=[1, {"two": 2}], weights=np.arange(3.0))
    kept(loop)["later"] = True
    checkpoint_of(tmp_path, rh.SavedStateHook(loop=loop))
    kept(loop).clear()
    kept(loop)["other"] = 1
    content = kept(loop)
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        hooks = [rh.SavedStateHook(loop=loop)]
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks):
            assert kept(loop) is content
            assert sorted(content) == ["best", "later", "name", "seen", "weights"]
            assert (content["best"], content["name"], content["later"]) == (1.5, "first", True)
            assert content["seen"] == [1, {"two": 2}]
            assert content["weights"].tolist() == [0.0, 1.0, 2.0]


def test_content_that_was_empty_is_empty_again(tmp_path, caplog: pytest.LogCaptureFixture):
    checkpoint_of(tmp_path, rh.SavedStateHook(loop={}))
    loop = {"todo": "a"}
    with caplog.at_level(logging.WARNING, "runhooks"):
        checkpoint_of(tmp_path, rh.SavedStateHook(loop=loop))
    assert loop == {}
    assert caplog.messages == []


GENERATORS = {
    "PCG64": (lambda: np.random.default_rng(3), lambda it: it.normal()),
    "MT19937": (lambda: np.random.Generator(np.random.MT19937(3)), lambda it: it.normal()),
    "RandomState": (lambda: np.random.RandomState(3), lambda it: it.normal()),
    "Random": (lambda: random.Random(3), lambda it: it.gauss(0, 1)),
    "numpy.random": (lambda: np.random, lambda it: it.normal()),
    "random": (lambda: random, lambda it: it.gauss(0, 1)),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_random_generator_goes_on_where_its_checkpoint_was_saved(kind, tmp_path):
    make, draw = GENERATORS[kind]
    generator = make()
    checkpoint_of(tmp_path, rh.SavedStateHook(noise=generator))
    expected = [draw(generator) for _ in range(3)]
    again = make()
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        hooks = [rh.SavedStateHook(noise=again)]
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks):
            assert [draw(again) for _ in range(3)] == expected
