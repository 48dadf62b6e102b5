"""Ranks that save and restore together; here each is a thread with a session of its own."""

import itertools
import logging
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import DirectoryLock, attempts, checkpoints, restore_latest
from runhooks.errors import DataLossError, DeadlineExceededError, NotFoundError, PeerFailedError
from runhooks.ranks import LocalGroup, entered
from tests.checkpoint.sealing import digest, forge


class Rank:
    """A rank of a training: a session with variables, a saver, and a counter as a hook has one."""

    def __init__(self, group, source=None, **options):
        self.group, self.rank = group, group.rank
        self.counts = {}
        graph = rh.Graph(engine="python")
        with graph.as_default():
            rh.Variable(np.arange(12.0).reshape(4, 3), name="same")
            self.own = rh.Variable(np.full(3, float(group.rank)), name="own")
            self.step = rh.train.get_or_create_global_step()
            self.element = None if source is None else rh.inputs(source, name="data")
            self.count = rh.group(self.step.assign_add(1))
        self.session = rh.Session(graph)
        self.session.attach("hook", self)
        self.saver = rh.Saver(**options)

    def state_dict(self):
        return self.counts

    def load_state_dict(self, state):
        self.counts = dict(state)

    def train(self):
        self.session.run(self.count if self.element is None else [self.element, self.count])

    def save(self, path):
        saved = self.saver.save(self.session, path, self.session.global_step)
        self.saver.wait()
        return saved

    def restore(self, directory):
        return restore_latest(self.saver, self.session, directory)

    def value(self, name):
        return self.session.run(f"{name}:0")


def on_all(ranks, act):
    """Call ``act`` on all ranks at once; return what each returned or raised."""

    def caught(rank):
        with entered(rank.group):
            threading.current_thread().name = f"rank {rank.rank}"
            try:
                return act(rank)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(caught, ranks))


def make(size, **options):
    groups = LocalGroup.together(size)
    return [Rank(group, **options) for group in groups]


def saved_by(size, path, steps=1):
    """Ranks that have saved at each of ``steps`` steps, with states of their own."""
    ranks = make(size)
    for _ in range(steps):
        for it in ranks:
            it.train()
            it.counts = {"rank": it.rank, "step": it.session.global_step}
        assert (
            on_all(ranks, lambda it: it.save(path))
            == [f"{path}-{ranks[0].session.global_step}"] * size
        )
    return ranks


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_rank_gets_back_what_it_had(tmp_path, asynchronous):
    ranks = make(3, asynchronous=asynchronous)
    for it in ranks:
        it.train()
        it.counts = {"rank": it.rank}
    path = str(tmp_path / "model.ckpt-1")
    assert on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt")) == [path] * 3
    assert [it.saver.last_checkpoints for it in ranks] == [[path]] * 3
    again = make(3)
    assert on_all(again, lambda it: it.restore(tmp_path)) == [path] * 3
    for it in again:
        np.testing.assert_array_equal(it.value("own"), np.full(3, float(it.rank)))
        np.testing.assert_array_equal(it.value("same"), np.arange(12.0).reshape(4, 3))
        assert (it.counts, it.session.global_step) == ({"rank": it.rank}, 1)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (3, 2), (2, 4)])
def test_another_number_of_ranks_goes_on(tmp_path, caplog, before, after):
    saved_by(before, tmp_path / "model.ckpt")
    again = make(after)
    with caplog.at_level(logging.INFO, "runhooks"):
        assert (
            on_all(again, lambda it: it.restore(tmp_path))
            == [str(tmp_path / "model.ckpt-1")] * after
        )
    assert f"was saved by {before} ranks, and there are {after}" in caplog.text
    assert ("differed in ['own']" in caplog.text) == (before > 1)
    for it in again:
        np.testing.assert_array_equal(it.value("own"), np.zeros(3))  # the chief's
        assert (it.counts, it.session.global_step) == ({"rank": 0, "step": 1}, 1)


def test_one_file_is_left_of_those_of_ranks_when_a_process_saves_the_step_alone(tmp_path):
    saved_by(2, tmp_path / "model.ckpt")
    (alone,) = make(1)
    on_all([alone], lambda it: it.restore(tmp_path))
    on_all([alone], lambda it: it.save(tmp_path / "model.ckpt"))
    assert [it.name for it in (tmp_path / "model.ckpt-1").iterdir()] == ["checkpoint.safetensors"]
    np.testing.assert_array_equal(rh.load(tmp_path)["own"], np.zeros(3))


def test_an_input_keeps_its_position_on_as_many_ranks_and_is_refused_on_others(tmp_path):
    class Loader:
        """Gives a rank its own numbers, and knows how far it is."""

        def __init__(self):
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            return self.at

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    def ranks(size):
        return [Rank(group, Loader()) for group in LocalGroup.together(size)]

    first = ranks(2)
    for it in first:
        for _ in range(3 + it.rank):  # runs that make no step
            it.session.run(it.element)
    on_all(first, lambda it: it.save(tmp_path / "model.ckpt"))
    second = ranks(2)
    on_all(second, lambda it: it.restore(tmp_path))
    assert [it.session.run(it.element) for it in second] == [4, 5]
    for error in on_all(ranks(3), lambda it: it.restore(tmp_path)):
        text = str(error) + "".join(getattr(error, "__notes__", ()))
        assert "the input 'data' cannot go on where it was" in text
        assert "2 ranks, and there are 3" in text


def test_an_input_that_is_a_function_of_the_step_goes_on_with_any_number(tmp_path):
    def ranks(size):
        return [
            Rank(
                group, lambda step, rank=group.rank, size=size: range(step * size + rank, 99, size)
            )
            for group in LocalGroup.together(size)
        ]

    first = ranks(2)
    drawn = [[it.session.run([it.element, it.count])[0] for it in first] for _ in range(3)]
    assert drawn == [[0, 1], [2, 3], [4, 5]]
    on_all(first, lambda it: it.save(tmp_path / "model.ckpt"))
    second = ranks(3)
    on_all(second, lambda it: it.restore(tmp_path))
    assert [it.session.run(it.element) for it in second] == [9, 10, 11]


def test_a_rank_that_cannot_write_leaves_no_checkpoint(tmp_path, monkeypatch):
    ranks = saved_by(3, tmp_path / "model.ckpt")
    write = os.fsync

    def fsync(descriptor):
        if threading.current_thread().name == "rank 1":
            raise OSError(28, "No space left on device")
        write(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for it in ranks:
        it.train()
    chief, failed, other = on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt"))
    assert isinstance(failed, OSError)
    for error in (chief, other):
        assert isinstance(error, PeerFailedError)
        assert error.rank == 1
        assert "No space left" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt-1"]
    monkeypatch.undo()
    path = str(tmp_path / "model.ckpt-2")
    assert on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt")) == [path] * 3


@pytest.mark.parametrize("error", [DataLossError("a bad disk"), NotFoundError("no such bucket")])
def test_an_error_of_the_chief_is_never_raised_as_that_of_another(tmp_path, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(attempts, "new_attempt", fail)
    chief, other = on_all(make(2), lambda it: it.save(tmp_path / "model.ckpt"))
    assert chief is error
    assert isinstance(other, PeerFailedError)
    assert (other.rank, str(error) in str(other)) == (0, True)


def test_ranks_at_different_steps_do_not_save(tmp_path):
    ranks = make(2)
    ranks[1].train()
    chief, other = on_all(ranks, lambda it: it.saver.save(it.session, tmp_path / "model.ckpt"))
    assert "different global steps, [0, 1]" in str(chief)
    assert isinstance(other, PeerFailedError)
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_never_comes_is_named(tmp_path):
    ranks = make(3)
    for it in ranks:
        it.group.barrier_secs = 0.2
    for error in on_all(ranks[:2], lambda it: it.save(tmp_path / "model.ckpt")):
        assert isinstance(error, DeadlineExceededError)
        assert re.search("rank (1, )?2 has not come", str(error))  # 1 may have been slow
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_is_committed_stays_whole_when_another_rank_fails_then(
    tmp_path: Path,
) -> None:
    class Dies(LocalGroup):
        """A rank that is killed when it has written its file."""

        def agree(self, name, *args, **options):
            if name.endswith("is committed"):
                self.fail("killed")
                raise RuntimeError("killed")
            return super().agree(name, *args, **options)

    memory = LocalGroup.together(1)[0]._memory
    ranks = [Rank(kind(rank, 2, memory)) for rank, kind in enumerate((LocalGroup, Dies))]
    chief, other = on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt"))
    assert isinstance(chief, PeerFailedError)
    assert isinstance(other, RuntimeError)
    again = make(2)
    assert on_all(again, lambda it: it.restore(tmp_path)) == [str(tmp_path / "model.ckpt-0")] * 2


def test_digests_of_the_chief_are_read_by_ranks_that_have_others_alone(tmp_path: Path) -> None:
    class Reads(LocalGroup):
        """Notes the keys of digests that this rank reads."""

        def store_get(self, key: str) -> str | None:
            if "digests attempt" in key:
                read.append(self.rank)
            return super().store_get(key)

    read: list[int] = []
    memory = LocalGroup.together(1)[0]._memory
    ranks = [Rank(Reads(rank, 3, memory)) for rank in range(3)]
    for it in ranks:
        it.session.assign({"own": np.full(3, float(it.rank == 2))})
    on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt"))
    assert read == [2]
    assert not any("digests attempt" in key for key in memory.values)


@pytest.mark.parametrize("rank", [0, 1])
def test_damage_that_one_rank_finds_takes_all_to_the_checkpoint_before(tmp_path, caplog, rank):
    saved_by(2, tmp_path / "model.ckpt", steps=2)
    path = tmp_path / "model.ckpt-2"
    (file,) = path.glob(f"*-{rank}.safetensors")
    forge(file, lambda it: it.update(states="{"))  # which only that rank reads
    forge(path, lambda it: it["about"]["files"].update({file.name: digest(file)}))
    again = make(2)
    assert on_all(again, lambda it: it.restore(tmp_path)) == [str(tmp_path / "model.ckpt-1")] * 2
    assert [it.counts for it in again] == [{"rank": 0, "step": 1}, {"rank": 1, "step": 1}]
    assert caplog.text.count("trying the one before it") == 1
    assert (f"rank {rank} says" in caplog.text) == (rank == 1)


def test_when_all_are_damaged_all_ranks_say_so(tmp_path):
    saved_by(2, tmp_path / "model.ckpt")
    next((tmp_path / "model.ckpt-1").glob("*-1.safetensors")).unlink()
    for error in on_all(make(2), lambda it: it.restore(tmp_path)):
        assert isinstance(error, DataLossError)
        assert "none of the 1 checkpoints" in str(error)
    shutil.rmtree(tmp_path / "model.ckpt-1")
    assert on_all(make(2), lambda it: it.restore(tmp_path)) == [None, None]


def test_a_model_that_does_not_fit_one_rank_is_an_error_on_all(tmp_path):
    saved_by(2, tmp_path / "model.ckpt")
    ranks = make(2)
    with ranks[1].session.graph.as_default():
        rh.Variable(np.zeros(2), name="new")
    chief, other = on_all(ranks, lambda it: it.restore(tmp_path))
    assert isinstance(other, ValueError)
    assert "missing ['new']" in str(other)
    assert isinstance(chief, PeerFailedError)
    assert chief.rank == 1


def test_the_chief_deletes_old_checkpoints_and_all_know(tmp_path):
    ranks = make(2, max_to_keep=2)
    for _ in range(4):
        for it in ranks:
            it.train()
        on_all(ranks, lambda it: it.save(tmp_path / "model.ckpt"))
    names = [f"model.ckpt-{step}" for step in (3, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for it in ranks:
        assert [Path(path).name for path in it.saver.last_checkpoints] == names


def test_what_a_killed_attempt_has_left_is_removed(tmp_path):
    (saved,) = make(1)
    on_all([saved], lambda it: it.save(tmp_path / "model.ckpt"))
    for step, host in itertools.product((0, 5, 6), ("elsewhere", "busy")):
        left = tmp_path / f"model.ckpt-{step}" / f"attempt-{host}-1-00000000-0-1.safetensors"
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(b"half")
        if host == "elsewhere" or step == 5:
            os.utime(left, (0, 0))
    saved_by(2, tmp_path / "model.ckpt")
    assert {it.name for it in tmp_path.iterdir()} == {f"model.ckpt-{step}" for step in (0, 1, 6)}
    assert [it.name[:12] for it in (tmp_path / "model.ckpt-6").iterdir()] == ["attempt-busy"]
    assert len(list((tmp_path / "model.ckpt-0").iterdir())) == 2


def test_several_savers_of_threads_do_not_mix(tmp_path):
    """As two hooks with asynchronous savers have them: whose thread comes first is open."""
    ranks = make(2, asynchronous=True)
    others = [rh.Saver(asynchronous=True) for _ in ranks]
    folders = [tmp_path / "a" / "model.ckpt", tmp_path / "b" / "model.ckpt"]

    def act(it):
        for step in range(5):
            pairs = list(zip([it.saver, others[it.rank]], folders, strict=True))
            for saver, folder in pairs if it.rank == 0 else pairs[::-1]:
                saver.save(it.session, folder, step)
            for saver, _ in pairs:
                saver.wait()

    assert on_all(ranks, act) == [None, None]
    for folder in folders:
        assert len(checkpoints(folder.parent)) == 5


def test_the_lock_of_the_directory_is_the_chiefs(tmp_path):
    ranks = make(2)
    locks = [DirectoryLock(tmp_path) for _ in ranks]
    on_all(ranks[1:], lambda it: locks[it.rank].acquire())
    assert list(tmp_path.iterdir()) == []
    on_all(ranks[:1], lambda it: locks[it.rank].acquire())
    assert [path.name for path in tmp_path.iterdir()] == [".chief.lock"]
    for lock in locks:
        lock.release()


def test_a_state_in_which_one_rank_has_found_nan_is_saved_by_none(tmp_path):
    ranks = make(3)
    on_all(ranks, lambda it: it.train())

    def end(rank):
        if rank.rank == 1:
            rank.session.state_error = rh.errors.NanLossDuringTrainingError()
        with rank.session.graph.as_default():
            hook = rh.CheckpointSaverHook(tmp_path, save_steps=100, saver=rank.saver)
            hook.begin()
            hook.after_create_session(rank.session, None)
            hook.end(rank.session)

    assert on_all(ranks, end) == [None] * 3
    assert checkpoints(tmp_path) == []
