"""Sessions, threads and coordinators of processes: what comes of them is the same here."""

import functools
import inspect
import threading

import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import train as ours

tf = tensorflow.compat.v1
CORNERS = {}


def corner(function):
    CORNERS[function.__name__] = function
    return function


def outcome(function, train, folder):
    """What comes of a corner: its answer, or the kind and the text of its error."""
    folder.mkdir()
    with tensorflow.Graph().as_default():
        return raised(function, train, str(folder))


def raised(call, *args, **kwargs):
    """What ``call`` returns, or the kind and the text of what it raises."""
    try:
        return call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return type(error).__name__, str(error)


def said(call, words):
    """The kind of what ``call`` raises, and whether it has the words that programs look for."""
    kind, text = raised(call)
    return kind, words in text


def step_op():
    return tf.assign_add(tf.train.get_or_create_global_step(), 1)


# Sessions that a creator of the user's own keeps open, in a graph that stays open


class CountingCreator:
    """Hands out one session again and again, which nobody may close; it finalizes no graph."""

    def __init__(self):
        self.session = tf.Session()
        self.session.close = lambda: None
        self.made = 0

    def create_session(self):
        self.made += 1
        return self.session


def failing_thread(train, error, gets_stuck=False):
    """A hook whose thread fails after the second run, once; the run itself may get stuck of it."""

    class Hook(train.SessionRunHook):
        runs = 0
        failed = False

        def after_create_session(self, session, coord):
            self.coord = coord

        def work(self):
            with self.coord.stop_on_exception():
                raise error

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs < 2 or self.failed:
                return
            self.failed = True
            thread = threading.Thread(target=self.work)
            self.coord.register_thread(thread)
            thread.start()
            thread.join()
            if gets_stuck:
                raise tf.errors.CancelledError(None, None, "the session is gone")

    return Hook()


def thread_fails(error, gets_stuck, by_step_fn):
    def play(train, folder):
        creator = CountingCreator()
        hook = failing_thread(train, error(None, None, "fatal"), gets_stuck)
        session = train.MonitoredSession(creator, [hook])
        x = tf.constant(0)
        same = tf.identity(x)

        def run(value):
            if not by_step_fn:
                return session.run(same, {x: value})

            def step_fn(step_context):
                step_context.session.run(same, {x: value})
                return step_context.run_with_hooks(fetches=same, feed_dict={x: value})

            return session.run_step_fn(step_fn)

        seen = [run(51), session.should_stop(), run(42), session.should_stop(), creator.made]
        return [*map(int, seen), raised(session.close)]

    return play


for error in (tf.errors.AbortedError, tf.errors.UnknownError):
    for by_step_fn in (False, True):
        name = f"thread_fails_of_{error.__name__}_{'in_step_fn' if by_step_fn else 'in_run'}"
        CORNERS[name] = thread_fails(error, False, by_step_fn)
        if error is tf.errors.AbortedError:
            CORNERS[f"{name}_which_gets_stuck"] = thread_fails(error, True, by_step_fn)


# Step functions


class Model:
    def step(self, step_context):
        return 2

    def step_of_more(self, step_context, more):
        return 2

    def __call__(self, step_context):
        return 3


STEP_FUNCTIONS = {
    "named": lambda step_context: 1,
    "with_default": lambda step_context=None: 1,
    "with_more_by_keyword": lambda step_context, *rest, more=1, **others: 1,
    "of_partial": functools.partial(lambda before, step_context: before, 5),
    "method": Model().step,
    "callable_object": Model(),
    "no_function": 3,
    "self_that_nobody_gives": lambda self, step_context: 1,
}
REFUSED = {
    "of_nothing": lambda: 1,
    "of_another_name": lambda context: 1,
    "of_more": lambda step_context, more: 1,
    "method_of_more": Model().step_of_more,
}


def step_function(step_fn):
    def play(train, folder):
        with train.MonitoredSession() as session:
            answer = raised(session.run_step_fn, step_fn)
        return answer[0] if isinstance(answer, tuple) else answer

    return play


def refused(step_fn):
    def play(train, folder):
        words = "`step_fn` may either have one `step_context`"
        with train.MonitoredSession() as session:
            return said(functools.partial(session.run_step_fn, step_fn), words)

    return play


CORNERS |= {f"step_fn_{name}": step_function(it) for name, it in STEP_FUNCTIONS.items()}
CORNERS |= {f"step_fn_{name}": refused(it) for name, it in REFUSED.items()}


@corner
def step_context_of_the_users_own(train, folder):
    for kind in (train.MonitoredSession, train.SingularMonitoredSession):
        context = kind.StepContext("session", lambda *args, **kwargs: (args, kwargs))
        answer = context.session, context.run_with_hooks(1, feed_dict=2)
    return answer


# What is refused


@corner
def tensor_is_fed_twice(train, folder):
    x = tf.placeholder(tf.float32, [])

    class Feeding(train.SessionRunHook):
        def before_run(self, run_context):
            return train.SessionRunArgs(None, {x: 1.0})

    answers = []
    for hooks in ([Feeding(), Feeding()], [Feeding()]):
        with train.MonitoredSession(hooks=hooks) as session:
            run = functools.partial(session.run, x, {x: 2.0} if len(hooks) == 1 else None)
            answers.append(said(run, "Same tensor is fed"))
    return answers


@corner
def copy_of_no_scaffold(train, folder):
    words = "copy_from_scaffold is not a Scaffold instance"
    return said(lambda: train.Scaffold(copy_from_scaffold=1), words)


@corner
def creator_without_create_session(train, folder):
    class Creator(train.SessionCreator):
        pass

    return raised(Creator)[0], raised(train.SessionCreator)[0]


# Half of the program is TensorFlow's


@corner
def scaffold_of_tensorflow(train, folder):
    op, seen = step_op(), []
    tf.summary.scalar("x", tf.constant(1.0))

    class Scaffold(tf.train.Scaffold):
        def finalize(self):
            seen.append("finalize")
            return super().finalize()

    scaffold = Scaffold(init_fn=lambda given, session: seen.append(given is scaffold))
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder, scaffold=scaffold, save_checkpoint_steps=2, save_summaries_steps=2
    ) as session:
        for _ in range(3):
            session.run(op)
    with train.SingularMonitoredSession(scaffold=Scaffold(), checkpoint_dir=folder) as session:
        return int(session.run(tf.train.get_global_step())), seen


@corner
def scaffold_of_runhooks(train, folder):
    op, seen = step_op(), []
    scaffold = ours.Scaffold(init_fn=lambda given, session: seen.append(given is scaffold))
    with train.MonitoredTrainingSession(checkpoint_dir=folder, scaffold=scaffold) as session:
        return int(session.run(op)), seen


@corner
def copy_of_a_scaffold_of_tensorflow(train, folder):
    base = tf.train.Scaffold(init_fn=lambda given, session: (given is base, session))
    return train.Scaffold(copy_from_scaffold=base, init_feed_dict=3).init_fn("session")[1]


@corner
def hook_is_of_both(train, folder):
    op = step_op()

    class Hook(ours.StopAtStepHook, tf.train.SessionRunHook):
        pass

    hooks = [tf.train.SessionRunHook(), Hook(last_step=2), ours.SessionRunHook()]
    made = []
    with train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            made.append(int(session.run(op)))
    return made


@corner
def global_step_is_fetched_of_a_server(train, folder):
    server = tf.train.Server.create_local_server()
    op = step_op()
    with train.MonitoredTrainingSession(server.target) as session:
        session.run(op)
        step = tf.train.get_global_step()
        return [int(value) for value in [session.run(step), *session.run([op, step])][:2]]


@pytest.mark.parametrize("name", CORNERS)
def test_what_comes_of_it_is_the_same(name, tmp_path):
    theirs = outcome(CORNERS[name], tf.train, tmp_path / "theirs")
    assert outcome(CORNERS[name], ours, tmp_path / "ours") == theirs


def test_arguments_and_defaults_of_a_training_session_are_those_of_tensorflow():
    theirs = inspect.signature(tf.train.MonitoredTrainingSession).parameters
    here = inspect.signature(rh.MonitoredTrainingSession).parameters
    assert list(here) == [*theirs, "recovery", "saver"]
    for name in ("saver", "recovery"):
        assert here[name].kind is inspect.Parameter.KEYWORD_ONLY
    for name in ("is_chief", "stop_grace_period_secs", "log_step_count_steps", "max_wait_secs"):
        assert here[name].default == theirs[name].default
