"""Where hooks write: with any writer, in a folder, in that of a rank."""

import shutil
import threading

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils import tensorboard as torch_tensorboard

import runhooks as rh
from runhooks import summary
from runhooks.events import read
from runhooks.ranks import LocalGroup, entered
from runhooks.testing import FakeClock


def save(writer, **summaries):
    return rh.SummarySaverHook(
        save_steps=1, summary_writer=writer, summary_op=list(summaries.values())
    )


class Recorder:
    """All that a writer of one's own has to have."""

    def __init__(self):
        self.calls = []

    def add_summary(self, summary, global_step=None):
        self.calls.append(([value.tag for value in summary], global_step))


class FullRecorder(Recorder):
    """What it may have."""

    def add_session_log(self, session_log, global_step=None):
        self.calls.append((session_log.status.name, global_step))

    def flush(self):
        self.calls.append("flush")


def test_a_writer_is_told_of_sessions_and_flushed_if_it_wants(model, train):
    writer = FullRecorder()
    train(save(writer, loss=summary.scalar("loss", model.loss)), steps=1)
    assert writer.calls == [("START", 1), (["loss"], 1), "flush"]


def test_what_is_no_writer_is_refused_when_the_hook_is_made(tmp_path):
    with torch_tensorboard.SummaryWriter(str(tmp_path)) as theirs:
        for writer in ("runs/a", theirs):
            with pytest.raises(TypeError, match=r"summary_writer .* that of runhooks.tensorboard"):
                rh.SummarySaverHook(save_steps=1, summary_writer=writer, summary_op=[])


def test_hooks_that_share_a_writer_write_one_start_for_each_session(model):
    writer = FullRecorder()
    hooks = [
        save(writer, loss=summary.scalar("loss", model.loss)),
        rh.StepCounterHook(summary_writer=writer),
        rh.ThroughputHook(summary_writer=writer),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert [call for call in writer.calls if call != "flush"] == [
        *(("START", 1), (["loss"], 1)),
        *(("START", 1), (["loss"], 1)),
    ]


def test_a_file_has_the_graph_though_the_directory_was_removed_between_two_sessions(
    tmp_path, model, train
):
    for _ in range(2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        hooks = [rh.StepCounterHook(1, output_dir=tmp_path / "run") for _ in range(2)]
        with rh.MonitoredSession(hooks=hooks) as sess:
            sess.run(model.train_op)
        (path,) = (tmp_path / "run").iterdir()
        events = list(EventFileLoader(str(path)).Load())
        assert [event.HasField("graph_def") for event in events].count(True) == 1


# --- Several ranks


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


@pytest.mark.parametrize(("runs_on", "found"), [("chief", {"."}), ("all", {".", "rank-1"})])
def test_summaries_are_written_by_the_chief_or_by_each_rank_in_its_folder(tmp_path, runs_on, found):
    def train(rank):
        step = rh.train.get_or_create_global_step()
        loss, op = rh.summary.scalar("loss", rh.call(float, step)), step.assign_add(1)
        hook = rh.SummarySaverHook(save_steps=1, output_dir=tmp_path, summary_op=loss)
        hook.runs_on = runs_on
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run(op)

    on_both(train)
    runs = read(tmp_path)
    assert set(runs) == found
    assert all(len(it.scalars["loss"].steps) == 4 for it in runs.values())


@pytest.mark.parametrize("says_rank", [False, True])
def test_a_hook_of_ones_own_writes_on_each_rank_in_its_folder(tmp_path, says_rank):
    class Own(rh.SessionRunHook):
        def __init__(self, directory, rank):
            self.directory, self.rank = directory, rank

        def begin(self):
            self.writer = summary.FileWriterCache.get(self.directory)

        def after_run(self, run_context, run_values):
            self.writer.scalar("rank", self.rank, run_context.next_step)

        def end(self, session):
            self.writer.flush()

    def train(rank):
        op = rh.train.get_or_create_global_step().assign_add(1)
        directory = tmp_path / "rank-1" if says_rank and rank == 1 else tmp_path
        with rh.MonitoredSession(hooks=[Own(directory, rank)]) as session:
            for _ in range(4):
                session.run(op)

    on_both(train)
    runs = read(tmp_path)
    found = {name: list(it.scalars["rank"].values) for name, it in runs.items()}
    assert found == {".": [0.0] * 4, "rank-1": [1.0] * 4}


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
