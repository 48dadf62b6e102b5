"""``warm_up`` compiles what runs will need; it computes nothing, and nothing is lost."""

import numpy as np
import pytest

import runhooks as rh

pytestmark = pytest.mark.every_engine


class Loader:
    """Numbers from 0, with a state."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        while self.next < 5:
            self.next += 1
            yield np.float32(self.next - 1)

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


def train_op_of(element):
    total = rh.Variable(np.float32(0), name="total")
    step = rh.train.create_global_step()
    return total, rh.group(total.assign_add(element), step.assign_add(1), name="train_op")


SOURCES = {
    "iterator": lambda: iter([np.float32(i) for i in range(5)]),
    "function of the step": lambda: lambda step: (np.float32(i) for i in range(step, 5)),
    "loader": Loader,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_no_element_of_an_input_is_lost(kind, graph):
    x = rh.inputs(SOURCES[kind]())
    _total, train_op = train_op_of(x)
    drawn = []
    with rh.MonitoredSession() as sess:
        sess.warm_up()
        sess.warm_up("train_op")
        assert sess.global_step == 0
        while len(drawn) < 3:
            drawn.append(float(sess.run([x, train_op])[0]))
        sess.warm_up([x, train_op])
        while not sess.should_stop():
            drawn.append(float(sess.run([x, train_op])[0]))
    assert drawn == [0, 1, 2, 3, 4]
    assert sess.global_step == 5


def test_position_of_an_input_is_that_before_the_warm_up(graph):
    x = rh.inputs(Loader())
    _total, train_op = train_op_of(x)
    with rh.Session() as sess:
        sess.run(train_op)
        sess.warm_up(train_op)
        snapshot = sess.snapshot()
        sess.run(train_op)
        later = sess.snapshot()
    with rh.Session() as resumed:
        resumed.load(snapshot)
        assert [resumed.run(x), resumed.run(x)] == [1, 2]
        resumed.load(later)
        assert resumed.run(x) == 2


class Records(rh.SessionRunHook):
    def __init__(self, fetches):
        self.fetches, self.called = fetches, []

    def before_run(self, run_context):
        self.called.append("before_run")
        return rh.SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        self.called.append("after_run")

    def warm_up(self, run_context):
        self.called.append("warm_up")
        return rh.SessionRunArgs(self.fetches)


def test_hooks_are_asked_and_take_part_in_no_run(graph):
    total, _train_op = train_op_of(np.float32(1))
    hook = Records(total * 2)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.warm_up()
        assert hook.called == ["warm_up"]
        assert sess.run(total, hooks=False) == 0


def test_what_is_missing_is_named(graph):
    x = rh.placeholder("x")
    train_op_of(rh.call(lambda x: x, x))
    if graph.engine.name != "jax":
        pytest.skip("it compiles nothing")
    with rh.MonitoredSession() as sess:
        with pytest.raises(ValueError, match="'x:0'"):
            sess.warm_up()
        sess.warm_up(feed_dict={x: np.float32(1)})


def test_hook_that_cannot_be_warmed_up_is_named(graph):
    train_op_of(np.float32(1))

    class Broken(rh.SessionRunHook):
        def before_run(self, run_context):
            return None

        def warm_up(self, run_context):
            raise ArithmeticError("no such number")

    with rh.MonitoredSession(hooks=[Broken()]) as sess:
        with pytest.raises(ArithmeticError) as caught:
            sess.warm_up()
    assert any("warm_up of the hook Broken" in note for note in caught.value.__notes__)


def test_closed_session(graph):
    train_op_of(np.float32(1))
    with rh.MonitoredSession() as sess:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        sess.warm_up()
