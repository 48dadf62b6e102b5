"""What hooks write when several ranks train: the chief alone, or each in a folder of its own."""

import threading

import pytest

import runhooks as rh
from runhooks.events import read
from runhooks.ranks import LocalGroup, entered
from runhooks.testing import FakeClock


def on_both(train):
    """Call ``train(rank)`` on two ranks, threads of this process; return the results."""
    results = {}

    def thread(group):
        with entered(group), rh.Graph().as_default():
            results[group.rank] = train(group.rank)

    threads = [threading.Thread(target=thread, args=[it]) for it in LocalGroup.together(2)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    return [results[0], results[1]]


def run(hook, steps=4):
    op = rh.train.get_or_create_global_step().assign_add(1)
    with rh.MonitoredSession(hooks=[hook]) as session:
        for _ in range(steps):
            session.run(op)


def loss():
    step = rh.train.get_or_create_global_step()
    return rh.summary.scalar("loss", rh.call(float, step))


@pytest.mark.parametrize(("runs_on", "found"), [("chief", {"."}), ("all", {".", "rank-1"})])
def test_summaries_are_written_by_the_chief_or_by_each_rank_in_its_folder(tmp_path, runs_on, found):
    def train(rank):
        hook = rh.SummarySaverHook(save_steps=1, output_dir=tmp_path, summary_op=loss())
        hook.runs_on = runs_on
        run(hook)

    on_both(train)
    runs = read(tmp_path)
    assert set(runs) == found
    assert all(len(it.scalars["loss"].steps) == 4 for it in runs.values())


def test_throughput_is_that_of_all_ranks(tmp_path):
    clock = FakeClock()

    def train(rank):
        hook = rh.ThroughputHook(examples=10, every_n_steps=2, output_dir=tmp_path)
        step = rh.train.get_or_create_global_step()

        def work(number):
            if rank == 0:
                clock.advance(1.0)
            return number + 1

        op = step.assign(rh.call(work, step))
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run(op)

    with clock:
        on_both(train)
    (contents,) = read(tmp_path).values()
    assert list(contents.scalars["throughput/steps_per_sec"].values) == [1.0, 1.0]
    assert list(contents.scalars["throughput/examples_per_sec"].values) == [20.0, 20.0]
