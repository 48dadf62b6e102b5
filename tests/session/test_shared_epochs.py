"""Hooks of several ranks that go by epochs: they act in the same runs on all, or on none."""

import threading

import numpy as np
import pytest

import runhooks as rh
from runhooks.ranks import LocalGroup
from tests.session.test_agreement import CountingGroup, on_all


class Batches:
    """Batches whose number differs from epoch to epoch, and need not be what ``len`` says."""

    def __init__(self, lengths, says=None):
        self.lengths, self.says, self.epoch = lengths, says or lengths, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.says[self.epoch]

    def __iter__(self):
        return iter(np.zeros((self.lengths[self.epoch], 1)))


class Meeting(rh.SessionRunHook):
    """Meets the hooks of the other ranks, as a collective operation of an evaluation does."""

    def __init__(self, calls, every=1, meet=lambda: None):
        self.timer, self.calls, self.meet = rh.Timer(rh.Trigger(every_epochs=every)), calls, meet

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step, session.epochs)

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        self.calls.append("asked")

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        if self.timer.should_trigger_for_step(step):
            self.timer.update_last_triggered_step(step)
            self.calls.append(step)


class Always(Meeting):
    """The same, called in every run."""

    next_due = rh.SessionRunHook.next_due

    def before_run(self, run_context):
        return None


def train(make, epochs=3, every=1, hook=Meeting, collective=True, groups=None):
    """Train on all ranks, in steps that wait for each other; return what hooks have seen, each."""
    groups = groups or LocalGroup.together(2)
    both, calls = threading.Barrier(len(groups)), [[] for _ in groups]

    def step(total, batch):
        if collective:
            both.wait(20)
        return total + 1

    def rank(group):
        graph = rh.graph(step, total=0, data=make(group.rank), epochs=epochs)
        hooks = [hook(calls[group.rank], every)]
        try:
            with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
                while not session.should_stop():
                    session.run("train_op")
            return session.global_step
        except BaseException:
            both.abort()  # as a process that ends does
            raise

    return on_all(groups, rank), calls


def told(error):
    """What ``error`` says, which may be that of a rank in a step for which another waits."""
    return " ".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.parametrize("hook", [Meeting, Always])
def test_epochs_of_any_length_that_are_alike_end_together(hook):
    lengths = [3, 1, 4]
    found, calls = train(lambda rank: Batches(lengths), hook=hook)
    assert found == [8, 8]
    assert [[it for it in seen if it != "asked"] for seen in calls] == [[3, 4, 8]] * 2


@pytest.mark.parametrize("hook", [Meeting, Always])
@pytest.mark.parametrize("collective", [True, False])
@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ([3, 6, 4], None),
        ([3, 2, 4], None),
        ([3, 1, 4], None),
        ([3, 2, 4], [3, 4, 4]),
        ([3, 3, 4], [3, 4, 4]),
        ([3, 5, 4], [3, 4, 4]),
        ([3, 9, 4], [3, 4, 4]),
    ],
    ids=lambda it: "".join(map(str, it or ["right"])),
)
def test_a_later_epoch_of_another_length_ends_all_before_hooks_act(theirs, says, collective, hook):
    ours = [3, 4, 4]
    found, calls = train(
        lambda rank: Batches(theirs, says) if rank else Batches(ours),
        hook=hook,
        collective=collective,
    )
    assert all(isinstance(it, Exception) for it in found), found
    assert all("steps_per_epoch" in told(it) for it in found), found
    first, second = ([it for it in seen if it != "asked"] for seen in calls)
    if collective or says is None:  # else rank 0 may be ahead of the run in which rank 1 fails
        assert first == second  # each call found the other rank in the same


@pytest.mark.parametrize("says", [[3, 4, 4], [3, 4, 5]])
def test_lengths_that_are_wrong_alike_and_too_small_are_no_matter(says):
    found, calls = train(lambda rank: Batches([3, 5, 5], says))
    assert found == [13, 13]
    assert calls[0] == calls[1]


def test_a_part_of_an_epoch_is_compared_too():
    found, calls = train(lambda rank: Batches([4, 8 if rank else 4, 4]), every=0.5)
    assert all("steps_per_epoch" in told(it) for it in found), found
    assert [it for it in calls[0] if it != "asked"] == [2, 4]
    assert calls[0] == calls[1]


def test_ranks_with_hooks_by_steps_may_have_epochs_of_their_own():
    class BySteps(rh.SessionRunHook):
        def __init__(self, calls, every):
            pass

    found, _ = train(lambda rank: Batches([3, 3 + rank, 4 - rank]), hook=BySteps)
    assert found == [10, 10]


class CountingStore(CountingGroup):
    """Counts what this rank asks of its store, in any thread: as runtimes are asked."""

    asked = 0

    def store_push(self, key, value):
        self.asked += 1
        super().store_push(key, value)

    def store_set_once(self, key, value):
        self.asked += 1
        return super().store_set_once(key, value)

    def store_pop(self, key):
        self.asked += 1
        return super().store_pop(key)

    def store_listen(self, key):
        self.asked += "/log/" in key
        return super().store_listen(key)

    def store_delete(self, key):
        self.asked += "/log/" in key
        super().store_delete(key)


@pytest.mark.parametrize("steps", [2, 20])
def test_an_epoch_costs_few_requests_however_many_steps_it_has(steps):
    def requests(epochs):
        memory = LocalGroup.together(2)[0]._memory
        groups = [CountingStore(rank, 2, memory) for rank in range(2)]
        found, _ = train(lambda rank: Batches(epochs * [steps]), epochs, groups=groups)
        assert found == [steps * epochs] * 2
        return [group.asked for group in groups]

    few, many = requests(10), requests(20)
    assert all(more - less <= 4 * 10 for more, less in zip(many, few, strict=True))
