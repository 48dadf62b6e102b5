"""Sessions of several ranks, here threads of one process: they stop before the same run."""

import gc
import random
import sys
import threading
import time

import pytest

import runhooks as rh
from runhooks.ranks import LocalGroup, entered

OFF_STEPS = 50


class CountingGroup(LocalGroup):
    """Counts the requests to the store that each thread makes."""

    requests: dict[int, int]

    def _key(self, key):
        thread = threading.get_ident()
        counts = vars(self).setdefault("requests", {})
        counts[thread] = counts.get(thread, 0) + 1
        return super()._key(key)


def on_all(groups, act):
    """Call ``act(group)`` in a thread for each rank; return what each returned or raised."""
    results = [None] * len(groups)

    def thread(group):
        try:
            with entered(group), rh.Graph().as_default():
                results[group.rank] = act(group)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[group.rank] = error

    threads = [threading.Thread(target=thread, args=[group]) for group in groups]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    return results


def counter():
    return rh.train.get_or_create_global_step().assign_add(1)


def training(hooks=lambda group: (), each=lambda group, session: None):
    """Return a loop that calls ``each`` after each run; it returns its last step and the reason."""

    def train(group):
        op = counter()
        with rh.MonitoredSession(hooks=hooks(group)) as session:
            while not session.should_stop():
                session.run(op)
                each(group, session)
        return session.global_step, session.stop_reason.partition(" (")[0]

    return train


class StopsAfter(rh.SessionRunHook):
    def __init__(self, run):
        self.run, self.runs = run, 0

    def after_run(self, run_context, run_values):
        self.runs += 1
        if self.runs == self.run:
            run_context.request_stop("enough")


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_any_speed_stop_before_the_same_run(seed):
    generator = random.Random(seed)
    pauses = [generator.choice([0, 0.0005, 0.002]) for _ in range(3)]
    wishes = [generator.choice([3, 10, 30, 10**6]) for _ in range(3)]
    wishes[generator.randrange(3)] = 20
    asks = generator.random() < 0.5  # in the way of a loop that never asks should_stop

    def train(group):
        op = counter()
        with rh.MonitoredSession(hooks=[StopsAfter(wishes[group.rank])]) as session:
            while asks or not session.should_stop():
                session.run(op)
                time.sleep(pauses[group.rank])
        return session.global_step, session.stop_reason.startswith("StopsAfter (enough)")

    first, second, third = on_all(LocalGroup.together(3), train)
    assert first == second == third
    assert first[0] >= min(wishes)


def test_a_run_beside_those_of_the_loop_does_not_count():
    def train(group):
        op = counter()
        with rh.MonitoredSession() as session:
            for _ in range(5 * group.rank):  # rank 1 alone
                session.run("global_step:0", hooks=False)
            while not session.should_stop():
                session.run(op)
                if group.rank == 1:
                    session.run("global_step:0", hooks=False)
                    if session.global_step == 4:
                        session.request_stop()
        return session.global_step

    first, second = on_all(LocalGroup.together(2), train)
    assert first == second >= 4


def test_a_loop_without_hooks_stops_with_the_others():
    def train(group):
        op = counter()
        with rh.MonitoredSession() as session:
            while not session.should_stop():
                session.run(op, hooks=False)
                if group.rank == 1 and session.global_step == 4:
                    session.request_stop()
        return session.global_step

    first, second = on_all(LocalGroup.together(2), train)
    assert first == second >= 4


def test_ranks_that_all_want_to_stop_do_so_at_once():
    train = training(lambda group: [rh.StopAtStepHook(last_step=7)])
    assert on_all(LocalGroup.together(3), train) == [(7, "StopAtStepHook")] * 3


def test_loops_that_end_by_themselves_end_together():
    def train(group):
        op = counter()
        with rh.MonitoredSession() as session:
            for _ in range(5):
                session.run(op)
        return session.global_step, session.stop_reason.partition(" (")[0]

    assert on_all(LocalGroup.together(2), train) == [(5, "the loop has ended")] * 2


@pytest.fixture
def no_collections():
    """Lets no session of another test be collected, and tell its group of it, inside of a run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.usefixtures("no_collections")
def test_an_off_step_asks_the_store_nothing(asks):
    requests, both = {}, threading.Barrier(2)

    def train(group):
        op = counter()
        hooks = [rh.StopAtStepHook(last_step=1000), rh.TimeLimitHook(1000)]
        with rh.MonitoredSession(hooks=hooks) as session:
            for _ in range(3):
                session.run(op)
            before = dict(group.requests)
            calls = []
            sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_qualname))
            for _ in range(OFF_STEPS):
                if asks:
                    session.should_stop()
                session.run(op)
            sys.setprofile(None)
            own = threading.get_ident()
            requests[group.rank] = group.requests[own] - before[own]
            both.wait()  # the end of a loop is a decision
            return {it for it in calls if it.startswith(("Decisions", "CountingGroup", "Group"))}

    memory = LocalGroup.together(2)[0]._memory
    assert on_all([CountingGroup(rank, 2, memory) for rank in range(2)], train) == [set(), set()]
    assert requests == {0: 0, 1: 0}


def test_an_error_of_one_rank_is_raised_on_the_others_with_its_cause():
    def breaks(group, session):
        if group.rank == 1:
            raise ValueError("it broke")

    train = training(each=breaks)
    first, second = on_all(LocalGroup.together(2), train)
    assert isinstance(second, ValueError)
    assert isinstance(first, rh.errors.PeerFailedError)
    assert (first.rank, first.cause) == (1, "ValueError('it broke')")


def test_an_error_in_begin_of_one_rank_ends_the_others():
    class Breaks(rh.SessionRunHook):
        def __init__(self, rank):
            self.rank = rank

        def begin(self):
            if self.rank == 1:
                raise ValueError("it broke")

    def train(group):
        rh.MonitoredSession(hooks=[Breaks(group.rank)])

    first, second = on_all(LocalGroup.together(2), train)
    assert isinstance(second, ValueError)
    assert isinstance(first, rh.errors.PeerFailedError)


def test_a_session_that_is_dropped_ends_the_others():
    def train(group):
        op = counter()
        session = rh.MonitoredSession()
        if group.rank == 1:
            session.run(op)
            del session
            return
        with session:
            while not session.should_stop():
                session.run(op)

    first, _ = on_all(LocalGroup.together(2), train)
    assert isinstance(first, rh.errors.PeerFailedError)
    assert "dropped without close" in first.cause


def test_hooks_of_the_chief_are_called_on_the_chief_alone():
    class Records(rh.SessionRunHook):
        def __init__(self, runs_on):
            self.runs_on, self.calls = runs_on, []

        def begin(self):
            self.calls.append("begin")

        def after_run(self, run_context, run_values):
            self.calls.append("run")

        def end(self, session):
            self.calls.append("end")

    def train(group):
        op = counter()
        hooks = [Records("chief"), Records("all")]
        with rh.MonitoredSession(hooks=hooks) as session:
            session.run(op)
        return [hook.calls for hook in hooks]

    life = ["begin", "run", "end"]
    assert on_all(LocalGroup.together(2), train) == [[life, life], [[], life]]


def test_all_ranks_save_what_a_hook_of_the_chief_changes_as_a_session_opens(tmp_path):
    class Changes(rh.SessionRunHook):
        runs_on = "chief"

        def after_create_session(self, session, coord):
            session.assign(session.read("w"))

    def train(group):
        group.barrier_secs = 10.0
        counter()
        rh.Variable(1.0, name="w")
        saver = rh.Saver()
        options = {"checkpoint_dir": tmp_path, "hooks": [Changes()], "saver": saver}
        with rh.MonitoredTrainingSession(**options):
            pass
        return len(saver.last_checkpoints)

    for _ in range(2):
        assert on_all(LocalGroup.together(2), train) == [1, 1]


def test_hooks_in_another_order_are_named():
    def hooks(group):
        given = [StopsAfter(3), rh.TimeLimitHook(1000)]
        return given if group.rank == 0 else given[::-1]

    for error in on_all(LocalGroup.together(2), training(hooks)):
        assert isinstance(error, RuntimeError)
        assert "the hook TimeLimitHook" in str(error)
        assert "where rank 0 has the hook StopsAfter" in str(error)


def test_runs_on_is_checked():
    hook = rh.SessionRunHook()
    hook.runs_on = "rank 3"
    with rh.Graph().as_default():
        with pytest.raises(ValueError, match="runs_on must be 'all' or 'chief', got 'rank 3'"):
            rh.MonitoredSession(hooks=[hook])


def test_one_training_follows_another_in_the_same_group():
    def train(group):
        steps = []
        for last_step in (2, 4):
            hook = rh.StopAtStepHook(last_step=last_step)
            with rh.Graph().as_default():
                steps.append(training(lambda group, hook=hook: [hook])(group)[0])
        return steps

    assert on_all(LocalGroup.together(2), train) == [[2, 4], [2, 4]]


@pytest.fixture
def lets_others_run():
    """Lets no thread that is busy keep those that decide waiting."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Log(LocalGroup):
    """Counts how often this rank has asked for a place in the log of the ranks."""

    asked = 0

    def store_set_once(self, key, value):
        self.asked += "/log/" in key
        return super().store_set_once(key, value)


def test_a_rank_that_proposes_late_passes_over_the_log_which_stays_short(lets_others_run):
    decided, memory = 10, LocalGroup.together(2)[0]._memory

    class CountsDecisions(rh.SessionRunHook):
        """Stops rank 1 when the chief has had its way so often."""

        def __init__(self, group):
            self.group, self.acted = group, 0
            self.timer = rh.Timer(rh.Trigger(every_secs=1e-6))

        def begin(self):
            self.timer.reset()

        def after_create_session(self, session, coord):
            self.timer.start(session.global_step)

        def next_due(self):
            return self.timer.due()

        def after_run(self, run_context, run_values):
            step = run_context.session.global_step
            if self.timer.should_trigger_for_step(step):
                self.timer.update_last_triggered_step(step)
                self.acted += 1
                if self.group.rank == 1 and self.acted == decided:
                    run_context.request_stop("enough")

    chief, other = [Log(rank, 2, memory) for rank in range(2)]
    on_all([chief, other], training(lambda group: [CountsDecisions(group)]))
    assert chief.asked >= decided
    assert other.asked <= 3  # once, but for entries of the chief that have just come
    assert len([key for key in memory.values if "/log/" in key]) <= 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (rh.TimeLimitHook, ("hook TimeLimitHook", "time=1001", "time=1000")),
        (lambda number: rh.StopAtStepHook(last_step=number), ("step=1001", "step=1000")),
        (lambda number: rh.StopAtStepHook(num_steps=number), ("step=1001", "step=1000")),
    ],
)
def test_limits_that_differ_are_refused(make, words):
    def train(group):
        counter()
        rh.MonitoredSession(hooks=[make(1000 + group.rank)])

    for error in on_all(LocalGroup.together(2), train):
        assert isinstance(error, RuntimeError)
        assert "rank 1 runs another program than rank 0" in str(error)
        assert all(word in str(error) for word in words), error
