import errno
import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints


def steps(path):
    return [checkpoint_step(checkpoint) for checkpoint in checkpoints(path)]


class Listener(rh.CheckpointSaverListener):
    """Records its calls; asks to stop after the checkpoint of ``stop_at``."""

    def __init__(self, stop_at=None):
        self.calls = []
        self.stop_at = stop_at

    def begin(self):
        self.calls.append("begin")

    def before_save(self, session, global_step_value):
        self.calls.append(("before", global_step_value))

    def after_save(self, session, global_step_value):
        self.calls.append(("after", global_step_value))
        return global_step_value == self.stop_at

    def end(self, session, global_step_value):
        self.calls.append(("end", global_step_value))


@pytest.mark.every_engine
@pytest.mark.parametrize("calls_super", [True, False])
def test_a_subclass_is_asked_to_save_once_a_step(calls_super, train, tmp_path):
    asked = []

    class Saver(rh.CheckpointSaverHook):
        def _save(self, session, step):
            asked.append(step)
            return super()._save(session, step) if calls_super else False

    train(Saver(tmp_path, save_steps=10), steps=20)
    assert asked == [0, 10, 20]
    assert steps(tmp_path) == (asked if calls_super else [])


def test_a_damaged_checkpoint_of_the_step_is_saved_again(train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=5)
    for step in (0, 5):
        (tmp_path / f"model.ckpt-{step}" / "checkpoint.safetensors").write_bytes(b"")
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=0)
    rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-0")


def test_a_checkpoint_that_another_run_left_is_not_taken_for_ones_own(model, train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=5)
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=100)
    with rh.Graph().as_default():
        rh.Variable(7.0, name="another")
        rh.train.create_global_step()
        with rh.MonitoredSession(hooks=[hook]):
            saved = rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-0")
    assert saved.arrays["another"] == 7.0


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise ValueError("a value that cannot be read")


@pytest.mark.parametrize("at", [2, 3], ids=["after_run", "end"])
def test_summaries_that_are_lost_do_not_cost_the_checkpoint(model, tmp_path, at):
    lost = rh.summary.Summary([rh.summary.scalar_value("lost", Unreadable())])
    writer = rh.summary.FileWriterCache.get(tmp_path)
    hooks = [rh.CheckpointSaverHook(tmp_path, save_steps=2)]
    with pytest.raises(ValueError, match="a value that cannot be read"):
        with rh.MonitoredSession(hooks=hooks) as sess:
            for step in range(1, at + 1):
                if step == at:
                    writer.add_summary(lost, step)
                sess.run(model.train_op)
    assert steps(tmp_path)[-1] == at


@pytest.mark.parametrize("stop_at", [0, 3])
def test_a_listener_may_stop_the_loop(train, tmp_path, stop_at):
    listeners = [Listener(stop_at), Listener()]
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=3, listeners=listeners)
    assert train(hook) == stop_at
    assert ("after", stop_at) in listeners[1].calls


def test_the_saver_and_the_name_may_be_chosen(train, tmp_path):
    hook = rh.CheckpointSaverHook(
        tmp_path, save_steps=1, saver=rh.Saver(max_to_keep=2), checkpoint_basename="weights"
    )
    train(hook, steps=5)
    assert [Path(path).name for path in checkpoints(tmp_path)] == ["weights-4", "weights-5"]


def test_the_saver_of_a_scaffold(model, tmp_path):
    scaffold = rh.Scaffold(saver=rh.Saver(max_to_keep=1))
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=1, scaffold=scaffold)
    with rh.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as sess:
        sess.run(model.train_op)
    assert steps(tmp_path) == [1]


def test_of_several_savers_one_must_be_named(graph, model, tmp_path):
    for _ in range(2):
        graph.add_to_collection(rh.GraphKeys.SAVERS, rh.Saver())
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=1)
    hook.begin()
    with pytest.raises(RuntimeError, match="2 savers"):
        hook.after_create_session(rh.Session(), rh.Coordinator())


def test_it_tells_what_it_has_saved(train, tmp_path, caplog, session_logs):
    caplog.set_level(logging.INFO, logger="runhooks")
    train(rh.CheckpointSaverHook(tmp_path, save_steps=2), steps=2)
    assert f"saved checkpoint {tmp_path / 'model.ckpt-2'}" in caplog.messages
    start, first, second = session_logs()
    assert (start[0], start[1].status) == (1, rh.summary.SessionStatus.START)
    assert (first[0], first[1].checkpoint_path) == (0, str(tmp_path / "model.ckpt-0"))
    assert (second[0], second[1].checkpoint_path) == (2, str(tmp_path / "model.ckpt-2"))
    assert second[1].status == rh.summary.SessionStatus.CHECKPOINT


@pytest.mark.every_engine
@pytest.mark.parametrize("save_graph_def", [True, False])
def test_the_graph_is_written_once(model, tmp_path, save_graph_def, written):
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=2, save_graph_def=save_graph_def)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    graphs = [event.graph_def for event in written() if event.graph_def]
    assert len(graphs) == 1


def test_event_files_are_flushed_before_a_checkpoint_is_there(model, tmp_path, written):
    seen = []

    class LookingSaver(rh.Saver):
        def save(self, sess, save_path, global_step=None):
            # What is in the file now would survive a kill right after the save.
            seen.append([event.step for event in written() if event.summary])
            return super().save(sess, save_path, global_step)

    summary = rh.summary.scalar("loss", model.loss)
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=LookingSaver()),
        rh.SummarySaverHook(1, output_dir=tmp_path, summary_op=summary),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(4):
            sess.run(model.train_op)
    assert seen == [[], [1, 2], [1, 2, 3, 4]]


@pytest.mark.every_engine
def test_the_checkpoint_of_a_step_holds_what_other_hooks_made_of_it(model, tmp_path):
    class Counting(rh.SessionRunHook):
        count = 0

        def after_run(self, run_context, run_values):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    hooks = [rh.CheckpointSaverHook(tmp_path, save_steps=2), Counting()]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(2):
            sess.run(model.train_op)
    states = rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-2").states
    assert states["Counting"] == {"count": 2}


def test_a_directory_that_cannot_be_written_is_told_at_once(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        rh.MonitoredSession(hooks=[rh.CheckpointSaverHook(tmp_path / "file" / "a", save_steps=1)])


# Asynchronous saving.


@pytest.fixture
def asynchronous(tmp_path):
    """Makes a hook whose saver writes in the background."""

    def asynchronous(**arguments):
        saver = rh.Saver(asynchronous=True)
        return rh.CheckpointSaverHook(tmp_path, saver=saver, **arguments)

    return asynchronous


def disk_full():
    return OSError(errno.ENOSPC, "No space left on device")


def saved_in_background(disk):
    """Let the disk go on, and return when what was being saved is there, or has failed."""
    disk.release()
    for thread in threading.enumerate():
        if thread.name == "runhooks-save":
            thread.join()


def test_listeners_are_told_when_it_is_on_the_disk(model, tmp_path, asynchronous, held_disk):
    listener = Listener()
    hook = asynchronous(save_steps=3, listeners=[listener])
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        assert listener.calls == ["begin", ("before", 0)]
        assert steps(tmp_path) == []
        saved_in_background(held_disk)
        sess.run(model.train_op)
        assert listener.calls == ["begin", ("before", 0), ("after", 0)]
        held_disk.hold()
        sess.run(model.train_op)
        assert listener.calls[-1] == ("before", 3)
        sess.run(model.train_op)
        held_disk.release()
    saves = [("before", 3), ("after", 3), ("before", 4), ("after", 4)]
    assert listener.calls[3:] == [*saves, ("end", 4)]
    assert steps(tmp_path) == [0, 3, 4]


def test_a_listener_may_stop_the_loop_later(model, asynchronous, held_disk):
    hook = asynchronous(save_steps=100, listeners=[Listener(stop_at=0)])
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        assert not sess.should_stop()
        saved_in_background(held_disk)
        sess.run(model.train_op)
        assert sess.should_stop()


def test_a_loop_that_fails_waits_for_the_one_under_way(
    model, tmp_path, asynchronous, held_disk, session_logs
):
    listener = Listener()
    with pytest.raises(ValueError, match="oops"):
        with rh.MonitoredSession(hooks=[asynchronous(save_steps=9, listeners=[listener])]) as sess:
            sess.run(model.train_op)
            threading.Timer(0.05, held_disk.release).start()
            raise ValueError("oops")
    assert steps(tmp_path) == [0]
    assert listener.calls == ["begin", ("before", 0)]
    rh.summary.FileWriterCache.clear()
    assert session_logs()[-1][1].checkpoint_path == str(tmp_path / "model.ckpt-0")


def test_a_loop_that_fails_notes_that_the_one_under_way_failed_too(model, asynchronous, held_disk):
    with pytest.raises(ValueError, match="oops") as caught:
        with rh.MonitoredSession(hooks=[asynchronous(save_steps=9)]) as sess:
            sess.run(model.train_op)
            held_disk.fail(disk_full())
            raise ValueError("oops")
    assert any("No space left on device" in note for note in caught.value.__notes__)


def test_a_recovery_goes_on_from_the_one_under_way(model, tmp_path, held_disk):
    saver, listener = rh.Saver(asynchronous=True), Listener()
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=saver, listeners=[listener])
    creator = rh.ChiefSessionCreator(rh.Scaffold(saver=saver), checkpoint_dir=str(tmp_path))
    with rh.MonitoredSession(creator, hooks=[hook]) as sess:
        held_disk.release()
        sess.run(model.train_op)
        saved_in_background(held_disk)
        sess.run(model.train_op)
        assert listener.calls[-1] in (("before", 2), ("after", 2))
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
        assert sess.global_step == 3
    assert [step for what, step in listener.calls[1:] if what == "after"] == [0, 2, 3]


# Several hooks, one save.


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_step_is_saved_once_however_many_hooks_ask(model, fake_clock, tmp_path, asynchronous):
    written = []

    class Counting(rh.Saver):
        def save(self, sess, save_path, global_step=None):
            written.append(global_step)
            return super().save(sess, save_path, global_step)

    saver = Counting(max_to_keep=None, asynchronous=asynchronous)
    listeners = [Listener(), Listener()]
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=saver, listeners=listeners[:1]),
        rh.CheckpointSaverHook(tmp_path, save_secs=3, saver=saver, listeners=listeners[1:]),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(7):
            sess.run(model.train_op)
            fake_clock.advance(1)
    assert written == steps(tmp_path) == [0, 2, 4, 6, 7]
    after = [[step for what, step in it.calls[1:] if what == "after"] for it in listeners]
    assert after == [[0, 2, 4, 6, 7], [0, 4, 7]]


def test_one_that_another_saver_is_writing_is_waited_for(model, tmp_path, held_disk):
    listener = Listener()
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=5, saver=rh.Saver(asynchronous=True)),
        rh.CheckpointSaverHook(tmp_path, save_steps=5, listeners=[listener]),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(model.train_op)
        assert listener.calls == ["begin", ("before", 0)]
        saved_in_background(held_disk)
        sess.run(model.train_op)
        assert listener.calls[-1] == ("after", 0)


def test_a_restored_step_is_not_told_again(model, train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=10), steps=3)
    listeners = [Listener(), Listener()]
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=10, listeners=[listener])
        for listener in listeners
    ]
    train(*hooks, steps=1, checkpoint_dir=str(tmp_path))
    for listener in listeners:
        assert listener.calls == ["begin", ("before", 4), ("after", 4), ("end", 4)]


def test_the_time_of_saving_is_kept_apart(model, fake_clock, tmp_path):
    class Slow(rh.Saver):
        def save(self, sess, save_path, global_step=None):
            fake_clock.advance(5)
            return super().save(sess, save_path, global_step)

    hook = rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=Slow())
    spent = []
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(4):
            sess.run(model.train_op)
            spent.append(
                sess.run_step_fn(lambda step_context: step_context.session).non_training_secs
            )
            fake_clock.advance(1)
    assert spent == [5, 10, 10, 15]


# After a resume, and errors of listeners.


@pytest.mark.parametrize("phase", ["begin", "before_save", "after_save", "end"])
def test_a_listener_that_raises_is_named(train, tmp_path, phase):
    class Broken(rh.CheckpointSaverListener):
        pass

    def fail(self, *args):
        raise ValueError("a listener's own")

    setattr(Broken, phase, fail)
    with pytest.raises(ValueError, match="a listener's own") as caught:
        train(rh.CheckpointSaverHook(tmp_path, save_steps=1, listeners=[Broken()]), steps=1)
    assert f"in {phase} of the listener Broken" in caught.value.__notes__


@pytest.mark.parametrize("phase", ["begin", "before_save", "end"])
def test_what_other_methods_of_a_listener_return_is_ignored(train, tmp_path, phase):
    listener = Listener()
    setattr(listener, phase, lambda *args: np.ones(2))  # which is neither true nor false
    train(rh.CheckpointSaverHook(tmp_path, save_steps=1, listeners=[listener]), steps=1)
    assert steps(tmp_path) == [0, 1]


def test_a_listener_that_asks_to_stop_is_logged_though_the_next_one_raises(train, tmp_path, caplog):
    broken = Listener()
    broken.after_save = lambda *args: 1 / 0
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=1, listeners=[Listener(stop_at=0), broken])
    with caplog.at_level(logging.INFO, "runhooks"), pytest.raises(ZeroDivisionError):
        train(hook, steps=1)
    assert "Listener asks to stop after the checkpoint of step 0" in caplog.messages


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"checkpoint_dir": ""}, ValueError, "checkpoint_dir"),
        ({"checkpoint_dir": 5}, TypeError, "checkpoint_dir"),
        ({"listeners": [5]}, TypeError, "listeners"),
        ({"save_steps": "a"}, TypeError, "save_steps"),
        ({"checkpoint_basename": "a/model.ckpt"}, ValueError, "checkpoint_basename"),
        ({"checkpoint_basename": ".."}, ValueError, "checkpoint_basename"),
        ({"checkpoint_basename": ""}, ValueError, "checkpoint_basename"),
        ({"checkpoint_basename": Path("model")}, TypeError, "checkpoint_basename"),
    ],
)
def test_arguments_of_another_kind(arguments, error, message):
    with pytest.raises(error, match=message):
        rh.CheckpointSaverHook(**{"checkpoint_dir": "dir", "save_steps": 1, **arguments})


def test_a_directory_may_have_a_name_that_is_not_utf_8(model, tmp_path):
    directory = tmp_path / os.fsdecode(b"run-\xff")
    for last_step in (2, 4):
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[rh.StopAtStepHook(last_step=last_step)],
            save_checkpoint_steps=1,
            save_summaries_steps=1,
        ) as sess:
            while not sess.should_stop():
                sess.run(model.train_op)
            assert sess.global_step == last_step
    assert steps(directory) == [0, 1, 2, 3, 4]
    assert [log.step for log in rh.events.read(directory).only.session_logs][-1] == 4


# Changes that make no step.


@pytest.fixture
def weights(graph):
    rh.train.get_or_create_global_step()
    return rh.Variable(np.float32(0), name="weights")


def resumed(weights, directory):
    with rh.MonitoredTrainingSession(checkpoint_dir=directory) as session:
        return session.run(weights, hooks=False), session.global_step


def test_a_loop_that_forgets_the_step_loses_nothing(weights, tmp_path):
    change = weights.assign_add(np.float32(1))
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        for _ in range(50):
            session.run(change)
    assert resumed(weights, tmp_path) == (50, 0)


def test_a_change_after_the_last_save_is_saved_at_the_end(weights, tmp_path):
    step = rh.train.get_global_step().assign_add(1)
    swap = weights.assign(np.float32(7))
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=1) as session:
        session.run(step)
        session.run(swap, hooks=False)
    assert resumed(weights, tmp_path) == (7, 1)


def test_what_a_hook_changes_as_a_session_opens_is_saved(weights, tmp_path):
    class Doubles(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            session.assign({"weights": session.read("weights")["weights"] * 2 + 1})

    for expected in (1, 3, 7):
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[Doubles()]):
            assert rh.load(tmp_path, "weights") == expected


def test_runs_that_change_nothing_save_nothing_again(weights, tmp_path):
    step = rh.train.get_global_step().assign_add(1)
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=1) as session:
        session.run(step)
        before = (tmp_path / "model.ckpt-1" / "checkpoint.safetensors").stat().st_mtime_ns
        session.run(weights, hooks=False)
    assert (tmp_path / "model.ckpt-1" / "checkpoint.safetensors").stat().st_mtime_ns == before
