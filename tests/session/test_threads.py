"""Several threads run one session, on every engine: each gets its own results, and so do hooks."""

import sys
import threading
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import runhooks as rh

ENGINES = ["python", "jax", "torch", "tensorflow"]
THREADS = 3
RUNS = 20


def own_program(engine):
    """A step, and constants to tell by who asked for them."""
    with rh.Graph(engine).as_default() as graph:
        x = rh.placeholder("x", np.float32, [])
        w = rh.Variable(np.float32(0), name="w")
        step = rh.train.get_or_create_global_step()
        train = rh.group(w.assign(rh.call(lambda w, x: w + x, w, x)), step.assign_add(1))
        marks = [rh.call(lambda i=i: np.float32(i), name=f"mark_{i}") for i in range(10)]
        feed = {x: np.float32(1)}
    return SimpleNamespace(
        graph=graph, x=x, w=w, train=train, marks=marks, feed=feed, opened=rh.MonitoredSession
    )


def tensorflow_program():
    import tensorflow

    from runhooks.tensorflow.train import MonitoredSession

    tf = tensorflow.compat.v1
    with tensorflow.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [], name="x")
        w = tf.get_variable("w", initializer=np.float32(0), use_resource=True)
        step = tf.train.get_or_create_global_step()
        train = tf.group(w.assign_add(x), step.assign_add(1))
        marks = [tf.identity(tf.constant(np.float32(i)), name=f"mark_{i}") for i in range(10)]
        feed = {x: np.float32(1)}
    return SimpleNamespace(
        graph=graph, x=x, w=w, train=train, marks=marks, feed=feed, opened=MonitoredSession
    )


@pytest.fixture(params=ENGINES)
def p(request):
    if request.param == "tensorflow":
        return tensorflow_program()
    return own_program(request.param)


@pytest.fixture(autouse=True)
def threads_that_take_turns_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(*targets):
    """Call the ``targets``, each in a thread, all at once; raise the first error of one of them."""
    barrier, errors = threading.Barrier(len(targets)), []

    def call(target):
        barrier.wait()
        try:
            target()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=call, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def raw_of(session):
    return session.run_step_fn(lambda step_context: step_context.session)


def number(value):
    return float(np.asarray(value))


class Asks(rh.SessionRunHook):
    """Asks for a mark in every run, a different one in each ``alternates`` run."""

    def __init__(self, p, mark, alternates=0):
        self.p, self.mark, self.alternates, self.calls = p, mark, alternates, 0
        self.asked = {}  # by the context of the run
        self.seen = []

    def before_run(self, run_context):
        self.calls += 1
        is_other = self.alternates and self.calls % self.alternates == 0
        mark = self.mark + is_other
        self.asked[id(run_context)] = (run_context, mark)
        return rh.SessionRunArgs({"mark": self.p.marks[mark]})

    def after_run(self, run_context, run_values):
        _, mark = self.asked.pop(id(run_context))
        self.seen.append(number(run_values.results["mark"]) == mark)


class Sleeps(Asks):
    """Is called at every fifth step, as a hook that the steps of a thread wake may be."""

    def __init__(self, p, mark):
        super().__init__(p, mark)
        self.timer = rh.Timer(rh.Trigger(every_steps=5))

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        return super().before_run(run_context)

    def after_run(self, run_context, run_values):
        self.timer.update_last_triggered_step(run_context.session.global_step)
        if run_values.results is not None:  # else its step was made by a run that did not ask it
            super().after_run(run_context, run_values)


class Watches(rh.SessionRunHook):
    def __init__(self, p, mark):
        self.p, self.mark, self.seen = p, mark, []

    def watched(self):
        return self.p.marks[self.mark]

    def watch(self, step, value):
        self.seen.append(number(value) == self.mark)

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.p.marks[self.mark])

    def after_run(self, run_context, run_values):
        self.watch(None, run_values.results)


def asks_for(p, run, thread):
    """Return what trains, and asks for the mark of ``thread`` in a structure of its own."""
    mark = p.marks[thread]
    structure = [(p.train, mark), {"train": p.train, "mark": mark}, [mark, p.train]][thread % 3]

    def train():
        for _ in range(RUNS):
            got = run(structure, p.feed)
            assert type(got) is type(structure)
            value = got["mark"] if isinstance(got, dict) else got[thread % 3 != 2]
            assert number(value) == thread

    return train


def test_threads_of_a_raw_session_get_what_they_fetch(p):
    with p.graph.as_default(), p.opened() as session:
        raw = raw_of(session)
        in_threads(*[asks_for(p, raw.run, thread) for thread in range(THREADS)])
        assert number(raw.run(p.w)) == raw.global_step == THREADS * RUNS


HOOKS = {
    "none": lambda p: [],
    "asks": lambda p: [Asks(p, 5)],
    "asks for others": lambda p: [Asks(p, 5, alternates=3), Asks(p, 7)],
    "sleeps": lambda p: [Sleeps(p, 5)],
    "watches": lambda p: [Watches(p, 5), Watches(p, 6)],
    "all": lambda p: [Asks(p, 5, alternates=4), Sleeps(p, 7), Watches(p, 8)],
}


@pytest.mark.parametrize("kind", HOOKS)
def test_threads_of_a_monitored_session_get_what_they_fetch(p, kind):
    hooks = HOOKS[kind](p)
    with p.graph.as_default(), p.opened(hooks=hooks) as session:
        in_threads(*[asks_for(p, session.run, thread) for thread in range(THREADS)])
        assert number(session.run(p.w, hooks=False)) == THREADS * RUNS
        assert session.global_step == THREADS * RUNS
    for hook in hooks:
        assert all(hook.seen)
        is_called_in_every_run = not isinstance(hook, Sleeps)
        assert (len(hook.seen) == THREADS * RUNS) if is_called_in_every_run else hook.seen


@pytest.mark.parametrize("kind", HOOKS)
def test_loop_beside_threads_that_run_the_raw_session(p, kind):
    """As queue runners do: other fetches, with no step."""
    hooks, is_over = HOOKS[kind](p), threading.Event()
    with p.graph.as_default(), p.opened(hooks=hooks) as session:
        raw = raw_of(session)

        def beside():
            while not is_over.is_set():
                assert number(raw.run(p.marks[9])) == 9

        def train():
            try:
                asks_for(p, session.run, 0)()
                for _ in range(RUNS):
                    assert session.run(p.train, p.feed) is None
            finally:
                is_over.set()

        in_threads(train, beside, beside)
        assert number(raw.run(p.w)) == session.global_step == 2 * RUNS
    assert all(all(hook.seen) and hook.seen for hook in hooks)


@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_hooks_of_all_threads_see_whole_runs_in_the_order_of_steps(engine):
    """The engines of runhooks make one run at a time, with its hooks."""

    class Order(rh.SessionRunHook):
        def before_run(self, run_context):
            self.next_step = run_context.next_step

        def after_run(self, run_context, run_values):
            steps.append((self.next_step, run_context.session.global_step))

    class Steps(Watches):
        def watch(self, step, value):
            watched.append(step)

        def after_run(self, run_context, run_values):
            self.watch(run_context.session.global_step, None)

    p = own_program(engine)
    for hook in (Order(), Steps(p, 5)):
        steps, watched = [], []
        with p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as session:
            in_threads(*[asks_for(p, session.run, thread) for thread in range(THREADS)])
        seen = steps or [(step, step) for step in watched]
        assert seen == [(step, step) for step in range(1, THREADS * RUNS + 1)]


@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_a_cadence_and_a_last_step_hold_exactly_though_several_threads_run(engine):
    p, n = own_program(engine), 10
    counter = []

    class Cadence(rh.SessionRunHook):
        timer = rh.Timer(rh.Trigger(every_steps=n))

        def next_due(self):
            return self.timer.due()

        def before_run(self, run_context):
            self.expected = run_context.next_step

        def after_run(self, run_context, run_values):
            step = run_context.session.global_step
            counter.append((self.expected, step))
            self.timer.update_last_triggered_step(step)

    with p.graph.as_default(), p.opened(hooks=[Cadence(), rh.StopAtStepHook(100)]) as sess:

        def loop():
            with suppress(RuntimeError):  # another thread's run was the last
                while not sess.should_stop():
                    sess.run(p.train, p.feed)

        in_threads(*[loop] * THREADS)
        assert sess.global_step == 100
    assert [it[0] for it in counter] == [it[1] for it in counter]
    assert [b - a for (_, a), (_, b) in pairwise(counter)] == [n] * (len(counter) - 1)


class ActsWhenFed:
    """A number that calls ``act`` as a run takes it in."""

    def __init__(self, act):
        self.act = act

    def __array__(self, dtype=None, copy=None):
        self.act()
        return np.array(1, np.float32)


class LosesOnce(ActsWhenFed):
    """Loses the session the first time, once it has called ``act``."""

    def __array__(self, dtype=None, copy=None):
        if self.act is not None:
            self.act()
            self.act = None
            raise rh.errors.AbortedError("the device went away")
        return np.array(1, np.float32)


@pytest.mark.parametrize("kind", HOOKS)
def test_run_that_is_made_in_the_middle_of_another_is_not_repeated_in_its_place(p, kind):
    """Whatever the session knows of its last run is then of the inner run."""
    hooks = HOOKS[kind](p)
    with p.graph.as_default(), p.opened(hooks=hooks) as session:
        raw = raw_of(session)

        def beside():
            assert number(raw.run(p.marks[9], p.feed)) == 9

        # A session that makes one run at a time would let another thread wait for the outer run.
        act = beside if isinstance(raw, rh.Session) else lambda: in_threads(beside)
        for _ in range(12):
            assert session.run(p.train, {p.x: ActsWhenFed(act)}) is None
        assert number(session.run(p.w, hooks=False)) == session.global_step == 12
    assert all(all(hook.seen) and hook.seen for hook in hooks)


def test_session_that_several_threads_lose_is_replaced_once():
    p, both = tensorflow_program(), threading.Barrier(2)

    with p.graph.as_default(), p.opened() as session:
        run = [lambda: session.run(p.train, {p.x: LosesOnce(both.wait)})] * 2
        in_threads(*run)
        assert session.recoveries == 1
        assert number(session.run(p.w)) == session.global_step == 2


@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_run_that_waited_for_the_one_that_lost_the_session_is_made_in_the_next(engine):
    p, waits = own_program(engine), threading.Event()

    with p.graph.as_default(), rh.MonitoredSession(hooks=[Asks(p, 5)]) as session:

        def second():
            waits.set()
            session.run(p.train, p.feed)

        in_threads(lambda: session.run(p.train, {p.x: LosesOnce(waits.wait)}), second)
        assert session.recoveries == 1
        assert 1 <= number(session.run(p.w)) == session.global_step


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_session_that_threads_lose_again_and_again_is_replaced_each_time(engine):
    """A run may end at any moment while another thread closes its session and opens the next."""
    p = tensorflow_program() if engine == "tensorflow" else own_program(engine)

    class Loses(Asks):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            if self.calls % 5 == 0:
                raise rh.errors.AbortedError("the device went away")

        def after_create_session(self, session, coord):
            sessions.append(session)
            if len(sessions) % 2 == 0:  # for the next attempt waits, and lets others wait
                raise rh.errors.AbortedError("it is not there yet")

    sessions = []
    hook, waits = Loses(p, 5), {"first_wait_secs": 1e-3, "longest_wait_secs": 1e-3}
    policy = rh.RecoveryPolicy(failures=10_000, **waits)
    with p.graph.as_default(), p.opened(hooks=[hook], recovery=policy) as session:
        in_threads(*[asks_for(p, session.run, thread) for thread in range(THREADS)])
        assert session.recoveries > 1
    assert all(hook.seen)


def test_threads_save_checkpoints_one_at_a_time(p, tmp_path):
    saver = rh.CheckpointSaverHook(tmp_path, save_steps=1)
    with p.graph.as_default(), p.opened(hooks=[saver]) as session:
        in_threads(*[asks_for(p, session.run, thread) for thread in range(3)])
    assert list(tmp_path.glob(f"model.ckpt-{3 * RUNS}*"))


def test_an_error_of_the_users_own_is_raised_though_another_thread_has_replaced_the_session():
    inside, gone, calls, losses = threading.Event(), threading.Event(), [], []

    class LosesOnce(rh.SessionRunHook):
        def before_run(self, run_context):
            if not losses:
                losses.append(run_context)
                raise rh.errors.AbortedError("the device went away")

    def step_fn(step_context):
        calls.append(step_context)
        inside.set()
        assert gone.wait(60)
        raise RuntimeError("of the user")

    p = own_program("python")
    with p.graph.as_default(), rh.MonitoredSession(hooks=[LosesOnce()]) as session:

        def lose():
            assert inside.wait(60)
            session.run(p.train, p.feed)
            gone.set()

        with pytest.raises(RuntimeError, match="of the user"):
            in_threads(lambda: session.run_step_fn(step_fn), lose)
        assert session.recoveries == 1
    assert len(calls) == 1


def test_a_run_that_finds_its_session_closed_is_made_in_the_next(p):
    """Whether it is closed before the run begins, or in the middle of it."""
    inside, gone, calls = threading.Event(), threading.Event(), []

    def step_fn(step_context):
        calls.append(step_context)
        inside.set()
        assert gone.wait(60)
        return number(step_context.session.run(p.marks[3]))

    def lose():
        assert inside.wait(60)
        session.run(p.train, {p.x: LosesOnce(lambda: None)})
        gone.set()

    with p.graph.as_default(), p.opened() as session:
        got = []
        in_threads(lambda: got.append(session.run_step_fn(step_fn)), lose)
        assert got == [3]
        assert len(calls) == 2


class UsesBeforeItOpens(rh.SessionRunHook):
    """In the second session, lets another thread ask ``should_stop`` before it may go on."""

    def __init__(self):
        self.opened, self.session, self.answers = 0, None, []

    def after_create_session(self, session, coord):
        self.opened += 1
        if self.opened == 2:
            asks = threading.Thread(
                target=lambda: self.answers.append(self.session.should_stop()), daemon=True
            )
            asks.start()
            asks.join(20)


def test_a_hook_may_wait_for_a_thread_that_asks_whether_to_stop(p):
    hook = UsesBeforeItOpens()
    with p.graph.as_default(), p.opened(hooks=[hook]) as session:
        hook.session = session
        session.run(p.train, {p.x: LosesOnce(lambda: None)})
        assert hook.answers == [False]
        assert session.recoveries == 1


def test_using_the_monitored_session_while_it_opens_says_what_to_use(p):
    class Uses(UsesBeforeItOpens):
        def after_create_session(self, session, coord):
            self.opened += 1
            if self.opened == 2:
                self.session.run(p.train, p.feed)

    hook = Uses()
    with p.graph.as_default(), pytest.raises(RuntimeError, match="session that the hook is given"):
        with p.opened(hooks=[hook]) as session:
            hook.session = session
            session.run(p.train, {p.x: LosesOnce(lambda: None)})


def test_threads_that_a_lost_session_waits_for_do_not_wait_for_the_next(p):
    """They run the session, or ask whether to stop, after they were asked to stop."""
    seen = []

    class Starts(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            if not starts:
                thread = threading.Thread(target=works, args=(coord,), daemon=True)
                coord.register_thread(thread)
                thread.start()
                starts.append(thread)

    def works(coord):
        with coord.stop_on_exception():
            assert coord.wait_for_stop(60)
            while starts[0] is threading.current_thread() and session._tf_sess() is not None:
                pass
            seen.append(session.should_stop())
            try:
                session.run(p.marks[3])
            except RuntimeError as error:
                seen.append(str(error))

    starts = []
    with p.graph.as_default(), p.opened(hooks=[Starts()], stop_grace_period_secs=60) as session:
        session.run(p.train, {p.x: LosesOnce(lambda: None)})
        assert not starts[0].is_alive()
        assert session.recoveries == 1
    stops, error = seen
    assert stops
    assert "is to stop" in error


def test_a_session_that_another_thread_opens_while_it_is_closed_is_closed_too(p):
    opens, closes, ended, sessions = threading.Event(), threading.Event(), [], []

    class Waits(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            sessions.append(session)
            if len(sessions) == 2:
                opens.set()
                assert closes.wait(60)

        def end(self, session):
            ended.append(session)

    with p.graph.as_default():
        session = p.opened(hooks=[Waits()])

        def lose():
            with suppress(RuntimeError):  # it is closed before the run is made again
                session.run(p.train, {p.x: LosesOnce(lambda: None)})

        def close():
            assert opens.wait(60)
            asks = threading.Thread(target=lambda: (stops(), closes.set()), daemon=True)
            asks.start()
            session.close()
            asks.join(60)

        def stops():
            while session.stop_reason is None:
                pass

        in_threads(lose, close)
    assert ended == sessions[1:]
    with pytest.raises(RuntimeError, match="closed"):
        sessions[1].run(p.marks[1])


def test_threads_may_bring_hooks_of_their_own(graph):
    one = rh.call(lambda: 1)

    def work():
        for _ in range(200):
            session.run(one, hooks=[rh.SessionRunHook()])

    with rh.MonitoredSession() as session:
        in_threads(*[work] * 4)
