"""An error keeps its class wherever it arises: neither a note nor a ``with`` block replaces it."""

import threading

import pytest

import runhooks as rh


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class AloofError(Exception):
    """Neither hashed nor compared, as a dataclass with arrays in it."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("not to be compared")


class FailingHook(rh.SessionRunHook):
    def __init__(self, error, phase):
        self.error = error
        setattr(self, phase, self.fail)

    def after_run(self, run_context, run_values):
        """Takes part in every run."""

    def fail(self, *args):
        raise self.error


class FailingListener(rh.CheckpointSaverListener):
    __init__ = FailingHook.__init__
    fail = FailingHook.fail


class FailingArray:
    def __init__(self, error):
        self.error = error

    def __array__(self, dtype=None, copy=None):
        raise self.error


def in_a_hook(phase):
    def run(error, model, folder):
        with rh.MonitoredSession(hooks=[FailingHook(error, phase)]) as session:
            session.run(model.train_op)

    return run


def in_a_listener(phase):
    def run(error, model, folder):
        listeners = [FailingListener(error, phase)]
        hook = rh.CheckpointSaverHook(folder, save_steps=1, listeners=listeners)
        with rh.MonitoredSession(hooks=[hook]) as session:
            session.run(model.train_op)

    return run


def in_an_input(error, model, folder):
    model.faults.fail(error)
    with rh.MonitoredSession() as session:
        session.run(model.train_op)


def in_an_operation(error, model, folder):
    def fail(weights):
        raise error

    failing = rh.call(fail, model.weights)
    with rh.MonitoredSession() as session:
        session.run(failing)


def in_the_block(error, model, folder):
    with rh.name_scope("scope"), rh.MonitoredSession() as session:
        session.run(model.train_op)
        raise error


def in_an_evaluation(error, model, folder):
    def feeds(step):
        yield {}
        raise error

    hook = rh.EvaluationHook({"loss": model.loss}, feeds, every_n_steps=1)
    with rh.MonitoredSession(hooks=[hook]) as session:
        session.run(model.train_op)


def in_a_thread(error, model, folder):
    with rh.MonitoredSession(hooks=[ThreadHook(error)]) as session:
        while not session.should_stop():
            session.run(model.train_op)


class ThreadHook(rh.SessionRunHook):
    def __init__(self, error):
        self.error = error

    def after_create_session(self, session, coord):
        threading.Thread(target=self.fail, args=(coord,)).start()

    def fail(self, coord):
        with coord.stop_on_exception():
            raise self.error


def in_init_fn(error, model, folder):
    def fail(scaffold, session):
        raise error

    with rh.MonitoredSession(rh.ChiefSessionCreator(rh.Scaffold(init_fn=fail))):
        pass


def in_an_event_file(error, model, folder):
    with rh.summary.FileWriter(folder) as writer:
        writer.scalar("loss", FailingArray(error), 1)


PLACES = {
    **{
        f"{phase} of a hook": in_a_hook(phase)
        for phase in (
            *("begin", "after_create_session", "next_due"),
            *("before_run", "after_run", "end"),
        )
    },
    **{
        f"{phase} of a listener": in_a_listener(phase)
        for phase in ("begin", "before_save", "after_save", "end")
    },
    **{
        name.replace("_", " "): place
        for name, place in list(globals().items())
        if name.startswith("in_") and name not in ("in_a_hook", "in_a_listener")
    },
}


@pytest.mark.parametrize("error", [MuteError(), AloofError()], ids=type)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.every_engine
def test_an_error_keeps_its_class(model, tmp_path, engine, place, error):
    with pytest.raises(type(error)) as caught:
        PLACES[place](error, model, tmp_path)
    assert caught.value is error


def test_what_on_exception_raises_is_noted_on_it(model):
    class Worse(rh.SessionRunHook):
        def on_exception(self, session, exception):
            raise MuteError

    error = AloofError()
    with pytest.raises(AloofError), rh.MonitoredSession(hooks=[Worse()]):
        raise error
    assert "Worse" in error.__notes__[0]
    assert "MuteError" in error.__notes__[0]


def test_an_error_that_means_a_lost_session_may_be_mute(model):
    class MuteAbort(rh.errors.AbortedError):
        __repr__ = __str__ = MuteError.__str__

    with rh.MonitoredSession(recovery=rh.RecoveryPolicy(failures=1, first_wait_secs=0)) as session:
        model.faults.fail(MuteAbort("lost"))
        session.run(model.train_op)
        assert session.recoveries == 1
