import gc
import weakref

import pytest

import runhooks as rh


@pytest.fixture(autouse=True)
def automatic():
    """Automatic collection is on, and nothing is left to be collected, or searched for it."""
    gc.collect()
    gc.freeze()
    gc.enable()
    yield
    gc.enable()


class Garbage:
    """A cycle, which reference counts alone do not free."""

    def __init__(self):
        self.me = self


class Litter(rh.SessionRunHook):
    """Leaves garbage behind in every run; ``alive`` says how many of them are left before it."""

    def __init__(self):
        self.left = []
        self.alive = []

    def before_run(self, run_context):
        self.alive.append(sum(ref() is not None for ref in self.left))
        self.left.append(weakref.ref(Garbage()))


def test_collects_on_due_steps_alone(train):
    litter = Litter()
    train(rh.GarbageCollectionHook(3), litter, steps=8)
    # Before run n: what was left since the collection after run 3 and 6.
    assert litter.alive == [0, 1, 2, 0, 1, 2, 0, 1]


def test_collects_when_the_session_starts(model):
    left = weakref.ref(Garbage())
    assert left() is not None
    with rh.MonitoredSession(hooks=[rh.GarbageCollectionHook()]) as sess:
        assert left() is None
        sess.run(model.train_op)


def test_automatic_collection_is_off_until_the_end(model):
    with rh.MonitoredSession(hooks=[rh.GarbageCollectionHook()]) as sess:
        sess.run(model.train_op)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_exception(model):
    with pytest.raises(ZeroDivisionError):
        with rh.MonitoredSession(hooks=[rh.GarbageCollectionHook()]) as sess:
            sess.run(model.train_op)
            raise ZeroDivisionError
    assert gc.isenabled()


def test_it_is_on_again_if_the_session_cannot_be_made(model):
    class Failing(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            assert not gc.isenabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rh.MonitoredSession(hooks=[rh.GarbageCollectionHook(), Failing()])
    assert gc.isenabled()


def test_two_sessions_that_end_in_either_order(model):
    first = rh.MonitoredSession(hooks=[rh.GarbageCollectionHook()])
    second = rh.MonitoredSession(hooks=[rh.GarbageCollectionHook()])
    first.close()
    second.run(model.train_op)
    assert not gc.isenabled()
    second.close()
    assert gc.isenabled()


def test_a_session_that_is_abandoned_does_not_keep_its_hook(model, monkeypatch):
    # Its number is never taken back: other tests must not see it.
    monkeypatch.setattr(rh.GarbageCollectionHook, "_number_in_session", 0)

    def abandon():
        hook = rh.GarbageCollectionHook()
        rh.MonitoredSession(hooks=[hook]).run(model.train_op)
        return weakref.ref(hook)

    hook = abandon()
    gc.collect()
    assert hook() is None


def test_a_subclass_need_not_be_hashable(train):
    class Equal(rh.GarbageCollectionHook):
        def __eq__(self, other):
            return isinstance(other, Equal)

    train(Equal(), Equal(), steps=1)
    assert gc.isenabled()
