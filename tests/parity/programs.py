"""Programs in which one thing happens each, to be played under TensorFlow and under runhooks.

``python programs.py LIBRARY``, one of tensorflow, python, jax, torch and runhooks.tensorflow, plays
them all and prints a JSON object: the trace of each program, by its name. The programs cannot know
which library it is: all that differs stands in the classes at the end.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import tempfile
import threading
from collections import defaultdict

NAMES = "abc"


class Life:
    """A graph of one training step, a session on it with three hooks, and what happens to them.

    ``trace`` holds it, a word each: ``a.begin``, ``session-run``. ``faults[word]`` are raised, one
    each time that the word happens; None lets it pass, and a function is called instead.
    """

    def __init__(self, lib):
        self.lib = lib
        self.trace = []
        self.faults = defaultdict(list)
        self.coord = None
        self.train_op = lib.train_op(lambda: self.happens("session-run"))
        self.scaffold = lib.train.Scaffold(init_fn=self.create)
        self.hooks = [self.hook(name) for name in NAMES]
        finalize = lib.graph.finalize

        def recorded():
            if not lib.graph.finalized:
                self.happens("finalize-graph")
            finalize()

        lib.graph.finalize = recorded

    def happens(self, word):
        self.trace.append(word)
        fault = self.faults[word].pop(0) if self.faults[word] else None
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            fault()

    def create(self, scaffold, session):
        """The last act of the creation of a raw session, which may fail in it."""
        close = session.close

        def recorded():
            self.happens("close-session")
            close()

        self.lib.created(session)
        self.happens("create-session")
        session.close = recorded  # one that fails before is closed too, by whoever makes it

    def hook(self, name):
        life = self

        class Hook(self.lib.train.SessionRunHook):
            last = name == "c"
            context = None

            def begin(self):
                life.happens(f"{name}.begin")

            def after_create_session(self, session, coord):
                life.coord = coord
                life.happens(f"{name}.after_create_session")

            def before_run(self, run_context):
                self.context = run_context
                life.happens(f"{name}.before_run")

            def after_run(self, run_context, run_values):
                life.happens(f"{name}.after_run")

            def end(self, session):
                life.happens(f"{name}.end")

            def on_exception(self, session, exception):
                life.happens(f"{name}.on_exception")

        return Hook()

    def open(self, kind="MonitoredSession"):
        return self.lib.open(kind, self.scaffold, self.hooks)

    def train(self, steps=1):
        """The loop of most programs."""
        with self.open() as session:
            self.loop(session, steps)

    def loop(self, session, steps):
        for _ in range(steps):
            if session.should_stop():
                break
            session.run(self.train_op)

    def in_thread(self, act):
        """Let a thread under the coordinator do ``act``, to its end."""

        def work():
            with self.coord.stop_on_exception():
                act()

        thread = threading.Thread(target=work)
        self.coord.register_thread(thread)
        thread.start()
        thread.join()

    def error(self, name="DataLossError"):
        return getattr(self.lib.errors, name)(None, None, "injected")

    def raise_error(self, name="DataLossError"):
        raise self.error(name)


PROGRAMS = {}


def program(function):
    name = function.__name__.replace("__", ".").replace("_", "-").replace(".", "_")
    PROGRAMS[name] = function


def faulty(name, steps=1, **faults):
    """A program that is the plain loop, disturbed by errors: their names by what happens."""

    def play(life):
        for word, errors in faults.items():
            life.faults[word] = [error and life.error(error) for error in errors]
        life.train(steps)

    PROGRAMS[name] = play


LOST = ["AbortedError"]

faulty("clean-end", steps=2)
faulty("end-of-input", steps=3, **{"session-run": [None, "OutOfRangeError"]})
faulty("run-raises", **{"session-run": ["DataLossError"]})
faulty("begin-raises", **{"b.begin": ["DataLossError"]})
faulty("after_create_session-raises", **{"b.after_create_session": ["DataLossError"]})
faulty("before_run-raises", **{"b.before_run": ["DataLossError"]})
faulty("after_run-raises", **{"b.after_run": ["DataLossError"]})
faulty("end-raises", **{"b.end": ["DataLossError"]})
faulty("hook-finds-the-end", **{"b.after_run": ["OutOfRangeError"]})
faulty("lost-in-a-run", **{"session-run": LOST})
faulty("lost-twice", **{"session-run": ["UnavailableError"], "b.before_run": [None, *LOST]})
faulty("lost-in-before_run", **{"b.before_run": LOST})
faulty("lost-in-after_run", **{"b.after_run": LOST})
faulty("lost-in-creation", **{"session-run": LOST, "create-session": [None, *LOST]})
faulty("lost-in-after_create_session", **{"b.after_create_session": LOST})
faulty("lost-at-the-start", **{"create-session": LOST})
faulty("lost-for-good", **{"session-run": LOST * 3})
faulty("lost-at-the-end", **{"b.end": LOST})


@program
def stop_by_hook(life):
    # The loop ends by should_stop, long before its steps are done.
    life.faults["b.after_run"] = [lambda: life.hooks[1].context.request_stop()]
    life.train(steps=5)


@program
def stop_by_hook_before_the_run(life):
    life.faults["b.before_run"] = [lambda: life.hooks[1].context.request_stop()]
    life.train(steps=5)


@program
def stop_by_hook_unasked(life):
    life.faults["b.after_run"] = [lambda: life.hooks[1].context.request_stop()]
    with life.open() as session:
        for _ in range(5):
            session.run(life.train_op)


@program
def stop_by_caller(life):
    with life.open() as session:
        session.run(life.train_op)
        life.lib.request_stop(session)
        life.loop(session, steps=5)


@program
def stop_by_step_function(life):
    def step(step_context):
        step_context.run_with_hooks(life.train_op)
        step_context.request_stop()

    with life.open() as session:
        while not session.should_stop():
            session.run_step_fn(step)


@program
def stop_by_coordinator(life):
    with life.open() as session:
        session.run(life.train_op)
        life.coord.request_stop()
        life.loop(session, steps=5)


@program
def block_raises(life):
    with life.open() as session:
        session.run(life.train_op)
        raise ZeroDivisionError


@program
def block_finds_the_end(life):
    with life.open() as session:
        session.run(life.train_op)
        raise StopIteration


@program
def run_raises_and_is_caught(life):
    life.faults["session-run"] = [life.error()]
    with life.open() as session:
        try:
            session.run(life.train_op)
        except life.lib.errors.DataLossError:
            session.run(life.train_op)


@program
def thread_raises(life):
    with life.open() as session:
        session.run(life.train_op)
        life.in_thread(life.raise_error)
        life.loop(session, steps=5)


@program
def thread_raises_unasked(life):
    with life.open() as session:
        life.in_thread(life.raise_error)
        session.run(life.train_op)


@program
def thread_finds_the_end(life):
    with life.open() as session:
        session.run(life.train_op)
        life.in_thread(lambda: life.raise_error("OutOfRangeError"))
        life.loop(session, steps=5)


@program
def thread_loses_the_session(life):
    with life.open() as session:
        life.in_thread(lambda: life.raise_error("AbortedError"))
        life.loop(session, steps=1)


@program
def closed_by_hand(life):
    session = life.open()
    session.run(life.train_op)
    session.close()


@program
def closed_twice(life):
    session = life.open()
    session.close()
    session.close()


@program
def run_after_close(life):
    session = life.open()
    session.close()
    session.run(life.train_op)


@program
def singular_is_lost(life):
    life.faults["session-run"] = [life.error("AbortedError")]
    with life.open("SingularMonitoredSession") as session:
        session.run(life.train_op)


@program
def interrupted(life):
    life.faults["b.after_run"] = [lambda: signal.raise_signal(signal.SIGINT)]
    life.train(steps=5)


@program
def interrupted_unasked(life):
    life.faults["b.after_run"] = [lambda: signal.raise_signal(signal.SIGINT)]
    with life.open() as session:
        for _ in range(5):
            session.run(life.train_op)


@program
def interrupted_twice(life):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    life.faults["b.after_run"] = [twice]
    life.train(steps=5)


@program
def checkpoint_is_saved(life):
    class Listener(life.lib.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            life.happens("saved")

    with tempfile.TemporaryDirectory() as folder:
        saver = life.lib.train.CheckpointSaverHook(folder, save_steps=1, listeners=[Listener()])
        life.hooks = [saver, life.hooks[0]]
        life.train()


@program
def resumed_at_its_last_step(life):
    stop = life.lib.train.StopAtStepHook(last_step=1)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with life.lib.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=[stop]
            ) as session:
                life.loop(session, steps=5)


class Runhooks:
    """runhooks, with a graph of the engine given."""

    def __init__(self, engine):
        import runhooks

        self.rh = runhooks
        self.train, self.errors = runhooks.train, runhooks.errors
        self.graph = runhooks.Graph(engine)

    def train_op(self, happens):
        class Batches:
            def __iter__(self):
                return self

            def __next__(self):
                happens()
                return 0.0

        step = self.train.get_or_create_global_step()
        return self.rh.group(self.rh.inputs(Batches()), step.assign_add(1))

    def open(self, kind, scaffold, hooks):
        # The one that is to come last is given first.
        given = [hooks[-1], *hooks[:-1]]
        if kind == "SingularMonitoredSession":
            return self.rh.SingularMonitoredSession(given, scaffold)
        policy = self.rh.RecoveryPolicy(failures=2, first_wait_secs=0.001)
        creator = self.rh.ChiefSessionCreator(scaffold)
        return self.rh.MonitoredSession(creator, given, recovery=policy)

    def created(self, session):
        pass

    def request_stop(self, session):
        session.request_stop()


class TensorFlow:
    """TensorFlow's own tf.compat.v1.train."""

    def __init__(self):
        import tensorflow

        self.tf = tensorflow.compat.v1
        self.tf.logging.set_verbosity(self.tf.logging.FATAL)
        # Sessions that are left open are closed by the garbage collector: no part of a life.
        self.tf.Session.__del__ = lambda session: None
        self.train, self.errors, self.graph = self.tf.train, self.tf.errors, self.tf.Graph()

    def train_op(self, happens):
        def draw():
            try:
                happens()
            except Exception as error:
                self.raised = error
                raise
            return 0.0

        batch = self.tf.py_func(draw, [], self.tf.double)
        step = self.train.get_or_create_global_step()
        with self.tf.control_dependencies([batch]):
            return self.tf.assign_add(step, 1).op

    def open(self, kind, scaffold, hooks):
        if kind == "SingularMonitoredSession":
            return self.train.SingularMonitoredSession(hooks, scaffold)
        return self.train.MonitoredSession(self.train.ChiefSessionCreator(scaffold), hooks)

    def created(self, session):
        """Let it raise what a Python function in the graph raised, as a device of its own would.

        All that TensorFlow has no error code for comes out of a run as UnknownError.
        """
        run = session.run

        def raising(*args, **kwargs):
            try:
                return run(*args, **kwargs)
            except self.errors.UnknownError:
                raise self.raised from None

        session.run = raising

    def request_stop(self, session):
        """Its sessions have no request_stop: this is what a program has to write."""
        session.run_step_fn(lambda step_context: step_context.request_stop())


class RunhooksTensorFlow(TensorFlow):
    """runhooks, with TensorFlow's graphs and errors."""

    def __init__(self):
        super().__init__()
        import runhooks
        from runhooks.tensorflow import train

        self.rh, self.train = runhooks, train

    def open(self, kind, scaffold, hooks):
        return Runhooks.open(self, kind, scaffold, hooks)

    def request_stop(self, session):
        session.request_stop()


def trace(play, lib):
    with lib.graph.as_default():
        life = Life(lib)
        try:
            play(life)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it is what is recorded
            life.trace.append(f"raises:{type(error).__name__}")
    return life.trace


def play(library):
    own = f"engine_{library}"  # of the examples, if they can be imported
    if own.isidentifier() and importlib.util.find_spec(own):
        importlib.import_module(own)
    kinds = {"tensorflow": TensorFlow, "runhooks.tensorflow": RunhooksTensorFlow}
    make = kinds.get(library, lambda: Runhooks(library))
    return json.dumps({name: trace(play, make()) for name, play in PROGRAMS.items()})


if __name__ == "__main__":
    print(play(sys.argv[1]))
