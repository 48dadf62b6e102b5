import logging

import pytest

import runhooks as rh


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
            coord.request_stop()

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
