"""Checkpoints in a store: what holds on a disk holds there, too.

Most tests go through fsspec's memory and an S3 server; those that lose requests, through a proxy.
"""

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import fsspec
import numpy as np
import pytest

import runhooks as rh
from runhooks import stores
from runhooks.checkpoint import (
    KeepBest,
    KeepLast,
    Saver,
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    read_checkpoint,
    restore_latest,
)
from runhooks.checkpoint.files import place_of
from runhooks.checkpoint.lock import DirectoryLock
from runhooks.errors import NotFoundError
from runhooks.stores import RetryPolicy, open_store
from tests.fault_proxy import FaultProxy
from tests.metric import Metric


@pytest.fixture(params=["memory", "s3"])
def url(request):
    """The URL of a run directory that is empty."""
    if request.param == "memory":
        return f"memory://{uuid4()}/run"
    return f"{request.getfixturevalue('bucket')}/run"


@pytest.fixture
def memory():
    return f"memory://{uuid4()}/run"


@pytest.fixture
def patient():
    """Stores are tried again soon, and for long; ``patient(policy)`` changes that."""
    before = stores.default_policy()
    stores.set_retry_policy(RetryPolicy(60, 0.01, 0.1))
    yield stores.set_retry_policy
    stores.set_retry_policy(before)


@pytest.fixture
def proxy(s3_server, bucket, patient, monkeypatch):
    """A proxy that the clients of the server go through."""
    proxy = FaultProxy(s3_server.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def impatient(patient, monkeypatch):
    """Nothing is tried again, also by s3fs, which does it by a clock of its own."""
    patient(RetryPolicy(0))
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)


def save(saver, sess, url, step=None):
    return saver.save(sess, f"{url}/model.ckpt", sess.global_step if step is None else step)


def keys(url):
    return [it.key for it in open_store(url).objects()]


def test_one_that_was_replaced_since_it_was_read(memory, at_step, make_session):
    save(Saver(), at_step(7), memory)
    rh.load(memory)
    larger = make_session(**{f"a{number}": np.zeros(3) for number in range(100)})
    path = save(Saver(), larger, memory, 7)
    assert latest_checkpoint(memory) == path


def test_what_is_saved_comes_back(url, make_session):
    random = np.random.default_rng(0)
    arrays = {
        "global_step": np.int64(7),
        "large": random.normal(size=(3000, 1000)).astype(np.float32),
        "none": np.zeros((0, 3)),
        "complex": np.array(1 + 2j, np.complex128),
        **{f"layer/{i}": random.normal(size=10) for i in range(20)},
    }
    sess = make_session(**arrays)
    sess.states = {"hook": {"best": 0.5, "kept": np.arange(3), "rest": (1, None, "é")}}
    saver = Saver()
    path = save(saver, sess, url)
    assert path == f"{url}/model.ckpt-7"
    assert saver.last_checkpoints == checkpoints(url) == [path]
    assert latest_checkpoint(url) == path
    assert checkpoint_step(path) == 7
    back = make_session(**dict.fromkeys(arrays, 0))
    assert restore_latest(Saver(), back, url) == path
    for name, value in arrays.items():
        np.testing.assert_array_equal(back.arrays[name], value)
        assert back.arrays[name].dtype == np.asarray(value).dtype
    kept = back.states["hook"].pop("kept")
    np.testing.assert_array_equal(kept, np.arange(3))
    assert back.states == {"hook": {"best": 0.5, "rest": (1, None, "é")}}
    np.testing.assert_array_equal(rh.load(url, "large"), arrays["large"])


SAVES_ON_HOST = """
import platform
platform.node = lambda: "j\u00fcrgens mac"
import numpy as np, runhooks as rh
from runhooks.stores import open_store
with rh.Graph(engine="python").as_default():
    rh.Variable(np.arange(3.0), name="w")
    with rh.Session() as session:
        path = rh.Saver().save(session, "memory://host/model.ckpt", 1)
print(rh.load(path, "w").tolist(), *(it.key.isascii() for it in open_store(path).objects()))
"""


def test_a_host_may_have_any_name():
    command = [sys.executable, "-c", SAVES_ON_HOST]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("]")[0] == "[0.0, 1.0, 2.0"
    assert done.stdout.split("]")[1].split() == ["True", "True"]


def test_one_with_letters_of_a_host_in_its_files_is_read(memory, at_step, monkeypatch):
    monkeypatch.setattr("runhooks.checkpoint.attempts._HOST", "j\u00fcrgens_mac")
    path = save(Saver(), at_step(1), memory)
    assert any("j\u00fcrgens" in it for it in keys(memory))
    assert latest_checkpoint(memory) == path
    np.testing.assert_array_equal(rh.load(path, "weights"), np.full(8, 1))


def test_a_name_may_begin_with_a_dot(url, at_step):
    for step in (1, 2):
        path = Saver().save(at_step(step), f"{url}/.model", step)
        assert latest_checkpoint(url) == path
    assert restore_latest(Saver(), at_step(0), url) == path
    assert Saver(max_to_keep=1).save(at_step(3), f"{url}/.model", 3) == checkpoints(url)[0]


def test_an_empty_directory_has_no_checkpoint(memory, at_step):
    assert checkpoints(memory) == []
    assert latest_checkpoint(memory) is None
    assert restore_latest(Saver(), at_step(0), memory) is None
    with pytest.raises(NotFoundError, match="no checkpoint"):
        Saver().restore(at_step(0), f"{memory}/model.ckpt-1")
    with pytest.raises(NotFoundError, match="no checkpoint"):
        rh.load(memory)


def test_old_ones_are_deleted(memory, at_step):
    metrics = {1: 0.5, 2: 0.9, 3: 0.1, 4: 0.2}
    keep = [KeepLast(1), KeepBest(Metric("accuracy", {**metrics, 5: 1.0}))]
    saver = Saver(keep=keep)
    for step in metrics:
        save(saver, at_step(step), memory)
    assert [checkpoint_step(it) for it in checkpoints(memory)] == [2, 4]
    assert rh.best_checkpoint(memory, "accuracy").step == 2
    np.testing.assert_array_equal(rh.load(memory, "weights", best="accuracy"), np.full(8, 2))
    assert len({key.partition("/")[0] for key in keys(memory)}) == 2
    save(Saver(keep=keep), at_step(5), memory)
    assert [checkpoint_step(it) for it in checkpoints(memory)] == [5]
    assert len(keys(memory)) == 2


def test_no_more_is_read_than_is_asked_for(bucket, proxy, make_session):
    large = np.zeros(3 << 20, np.float32)
    save(Saver(), make_session(global_step=np.int64(1), large=large, small=np.arange(4)), bucket)
    asked = len(proxy.requests)
    np.testing.assert_array_equal(rh.load(bucket, "small"), np.arange(4))
    sizes = proxy.answered[asked:]
    assert sum(sizes) < 100_000
    back = make_session(global_step=np.int64(0), large=np.ones(1), small=np.zeros(4))
    asked = len(proxy.requests)
    Saver(["small"]).restore(back, f"{bucket}/model.ckpt-1")
    assert back.loaded_only == ["small"]


def test_a_damaged_one_is_passed_over(memory, at_step, caplog):
    saver = Saver()
    for step in (1, 2):
        save(saver, at_step(step), memory)
    store = open_store(memory)
    (name,) = (key for key in keys(memory) if "model.ckpt-2/attempt" in key)
    content = bytearray(store.read(name))
    content[-1] ^= 1
    store.put(name, bytes(content))
    sess = at_step(0)
    with caplog.at_level(logging.WARNING, "runhooks"):
        assert restore_latest(Saver(), sess, memory) == f"{memory}/model.ckpt-1"
    assert "model.ckpt-2 is damaged" in caplog.text
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 1))
    store.delete([name])
    assert checkpoints(memory) == [f"{memory}/model.ckpt-1"]
    # The training goes on from there, and comes to step 2 again.
    path = save(Saver(), at_step(2), memory)
    np.testing.assert_array_equal(read_checkpoint(place_of(path)).arrays["weights"], np.full(8, 2))
    assert [checkpoint_step(it) for it in checkpoints(memory)] == [1, 2]


def test_objects_that_no_save_has_written_are_kept(url, at_step):
    saver = Saver(max_to_keep=1)
    save(saver, at_step(1), url)
    open_store(url).put("model.ckpt-1/notes.txt", b"mine")
    save(saver, at_step(2), url)
    assert [checkpoint_step(it) for it in checkpoints(url)] == [2]
    assert {it for it in keys(url) if it.startswith("model.ckpt-1/")} == {"model.ckpt-1/notes.txt"}


def test_a_step_is_saved_once(url, at_step):
    """Of two processes that do not know of each other one commits, and one is told."""
    (first, here), (second, there) = (Saver(), at_step(3)), (Saver(), at_step(3))
    save(first, here, url, 1)
    save(second, there, url, 2)  # both have looked into the directory now
    save(first, here, url, 3)
    before = keys(url)
    with pytest.raises(FileExistsError, match="another process has saved.*model.ckpt-3"):
        save(second, there, url, 3)
    assert keys(url) == before
    np.testing.assert_array_equal(rh.load(url, "weights"), np.full(8, 3))


def test_one_that_is_ones_own_is_replaced(memory, at_step):
    saver = Saver()
    save(saver, at_step(1), memory)
    other = at_step(1)
    other.arrays["weights"] += 1
    save(saver, other, memory)
    np.testing.assert_array_equal(rh.load(memory, "weights"), np.full(8, 2))
    assert len(keys(memory)) == 2


def test_whoever_comes_later_has_the_directory(url, at_step):
    first = DirectoryLock(url)
    first.acquire()
    saver = Saver()
    save(saver, at_step(1), url)
    take = f"""
from runhooks.checkpoint.lock import DirectoryLock
lock = DirectoryLock({url!r})
lock.acquire()
lock.acquire()
"""
    if url.startswith("memory"):  # which no other process has
        rh.checkpoint.lock.Claim(place_of(url))
    else:
        subprocess.run([sys.executable, "-c", take], check=True)
    with pytest.raises(RuntimeError, match=r"process \d+ on .* has begun to save checkpoints in"):
        save(saver, at_step(2), url)
    assert checkpoints(url) == [f"{url}/model.ckpt-1"]
    first.release()
    again = DirectoryLock(url)
    again.acquire()
    save(saver, at_step(2), url)
    again.release()
    assert not any(key.startswith(".chief") for key in keys(url))


def test_other_objects_beside_the_claim_change_nothing(memory):
    open_store(memory).put(".chief/.DS_Store", b"")
    lock = DirectoryLock(memory)
    lock.acquire()
    lock.release()
    assert keys(memory) == [".chief/.DS_Store"]


def leave_attempts(url, at_step, monkeypatch):
    """Save a checkpoint, and leave an attempt beside it and one without; their keys."""
    saver = Saver()
    save(saver, at_step(1), url)
    before = keys(url)
    with monkeypatch.context() as patch:
        patch.setattr("runhooks.checkpoint.attempts.commit", _die)
        patch.setattr("runhooks.checkpoint.attempts.abandon", lambda *arguments: None)
        for step in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                save(Saver(), at_step(step), url)
    return sorted(set(keys(url)) - set(before))


def _die(*arguments):
    raise KeyboardInterrupt


def test_leftovers_are_removed_a_day_later(memory, at_step, monkeypatch, fake_clock):
    left = leave_attempts(memory, at_step, monkeypatch)
    assert len(left) == 2
    assert checkpoints(memory) == [f"{memory}/model.ckpt-1"]
    # Somebody else may still be writing them.
    modified = max(it.modified for it in open_store(memory).objects())
    fake_clock.advance(modified - fake_clock.wall() + 80_000)
    save(Saver(), at_step(3), memory)
    assert set(left) <= set(keys(memory))
    fake_clock.advance(10_000)
    save(Saver(), at_step(4), memory)
    assert not set(left) & set(keys(memory))
    assert [checkpoint_step(it) for it in checkpoints(memory)] == [1, 3, 4]
    for path in checkpoints(memory):
        read_checkpoint(place_of(path))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["503", "lost request", "lost answer"])
def test_every_request_may_fail_once(bucket, proxy, at_step, fault):
    fails = itertools.cycle([True, False, False])  # s3fs may need two requests for an answer
    lock = threading.Lock()

    def decide(method, path):
        with lock:
            return fault if next(fails) else None

    proxy.decide = decide
    lock_of_directory = DirectoryLock(bucket)
    lock_of_directory.acquire()
    saver = Saver(max_to_keep=1)
    for step in (1, 2):
        save(saver, at_step(step), bucket)
    sess = at_step(0)
    assert restore_latest(Saver(), sess, bucket) == f"{bucket}/model.ckpt-2"
    lock_of_directory.release()
    proxy.decide = lambda method, path: None
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 2))
    assert len(keys(bucket)) == 2


def test_a_store_that_stays_away_is_an_error_of_a_disk(bucket, proxy, impatient, at_step):
    save(Saver(), at_step(1), bucket)
    proxy.decide = lambda method, path: "503"
    with pytest.raises(OSError, match="(?i)SlowDown|reduce your request rate") as caught:
        save(Saver(), at_step(2), bucket)
    assert caught.value.filename.startswith(bucket)
    # Not "damaged": the training must not go on from an older checkpoint, or start over.
    with pytest.raises(OSError, match="(?i)SlowDown|reduce your request rate"):
        restore_latest(Saver(), at_step(0), bucket)
    proxy.decide = lambda method, path: None
    assert restore_latest(Saver(), at_step(0), bucket) == f"{bucket}/model.ckpt-1"


def test_the_training_goes_on_while_the_store_does_not_answer(bucket, proxy, at_step):
    saver = Saver(asynchronous=True)
    save(saver, at_step(1), bucket)
    saver.wait()
    held, free = threading.Event(), threading.Event()

    def decide(method, path):
        if method == "PUT" and not free.is_set():
            held.set()
            free.wait(60)
            return "503"
        return None

    proxy.decide = decide
    save(saver, at_step(2), bucket)
    assert held.wait(60)
    assert checkpoints(bucket) == [f"{bucket}/model.ckpt-1"]  # here the training goes on
    free.set()
    saver.wait()
    assert checkpoints(bucket)[-1] == f"{bucket}/model.ckpt-2"


def test_an_error_of_the_background_comes_to_light(bucket, proxy, impatient, at_step):
    saver = Saver(asynchronous=True)
    save(saver, at_step(1), bucket)
    saver.wait()
    proxy.decide = lambda method, path: "503" if method == "PUT" else None
    save(saver, at_step(2), bucket)
    with pytest.raises(OSError, match="(?i)SlowDown|reduce your request rate"):
        saver.wait()
    proxy.decide = lambda method, path: None
    assert checkpoints(bucket) == [f"{bucket}/model.ckpt-1"]
    save(saver, at_step(2), bucket)
    saver.wait()
    assert checkpoints(bucket)[-1] == f"{bucket}/model.ckpt-2"


PROGRAM = Path(__file__).parents[1] / "soak" / "program.py"


@pytest.mark.slow
def test_killed_while_it_commits_a_training_resumes_bit_for_bit(bucket, proxy, tmp_path):
    """Killed before the store has the manifest, and after: both times it goes on where it was."""

    def train(folder):
        command = [sys.executable, str(PROGRAM), str(folder), "--last-step", "11", "--asynchronous"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    faults = {"model.ckpt-5/checkpoint": "lost request", "model.ckpt-10/checkpoint": None}
    found = []
    for part, fault in faults.items():
        with train(f"{bucket}/run") as process:

            def decide(method, path, part=part, fault=fault, process=process):
                if method == "PUT" and part in path:
                    process.kill()
                    return fault
                return None

            proxy.decide = decide
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        found.append(latest_checkpoint(f"{bucket}/run"))
    assert found == [f"{bucket}/run/model.ckpt-0", f"{bucket}/run/model.ckpt-10"]
    proxy.decide = lambda method, path: None
    ends = []
    for folder in (f"{bucket}/run", tmp_path):
        with train(folder) as process:
            process.communicate()
        assert process.returncode == 0
        last = read_checkpoint(place_of(latest_checkpoint(folder)))
        ends.append(({name: it.tobytes() for name, it in last.arrays.items()}, last.states))
    assert str(ends[0]) == str(ends[1])


def test_a_checkpoint_can_be_copied_both_ways(memory, tmp_path, at_step):
    save(Saver(), at_step(1), memory)
    store = open_store(memory)
    for key in keys(memory):
        file = tmp_path / "down" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(store.read(key))
    sess = at_step(0)
    assert restore_latest(Saver(), sess, tmp_path / "down") is not None
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 1))
    save(Saver(), at_step(1), tmp_path / "down")  # in its place
    save(Saver(), at_step(2), tmp_path / "up")
    for file in (tmp_path / "up").rglob("*.*"):
        if file.is_file():
            store.put(f"up/{file.relative_to(tmp_path / 'up')}", file.read_bytes())
    assert restore_latest(Saver(), sess, f"{memory}/up") == f"{memory}/up/model.ckpt-2"
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 2))
    np.testing.assert_array_equal(rh.load(f"{memory}/up", "weights"), np.full(8, 2))


# Another test may have started threads of JAX, which the child does not touch.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_may_save_too(memory, at_step):
    open_store(memory)  # before: a child cannot tell that a package is missing
    child = os.fork()
    if not child:
        try:
            save(Saver(), at_step(1), memory)
            os._exit(len(checkpoints(memory)) + 6)
        finally:
            os._exit(1)  # it must not go on with the tests
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_files_of_weights(memory, tmp_path, at_step):
    save(Saver(), at_step(3), memory)
    rh.export(memory, f"{memory}/a.safetensors", "weights")
    np.savez(tmp_path / "a.npz", weights=np.full(8, 3))
    torch = pytest.importorskip("torch")
    torch.save({"weights": torch.full((8,), 3)}, tmp_path / "a.pt")
    for name in ("a.npz", "a.pt"):
        open_store(memory).put(name, (tmp_path / name).read_bytes())
    for name in ("a.safetensors", "a.npz", "a.pt"):
        found = rh.load(f"{memory}/{name}", "weights")
        np.testing.assert_array_equal(found, np.full(8, 3))
    with pytest.raises(NotFoundError, match="there is no file"):
        rh.load(f"{memory}/missing.safetensors")


def test_a_file_url_is_a_path(tmp_path, at_step):
    path = save(Saver(), at_step(1), f"file://{tmp_path}/run")
    assert path == f"{tmp_path}/run/model.ckpt-1"
    assert latest_checkpoint(f"file://{tmp_path}/run") == path
    assert Path(path, "checkpoint.safetensors").exists()


def test_a_url_without_a_host_begins_at_the_root(tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(fsspec.config.conf, "local", {"auto_mkdir": True})
    url = f"local://{tmp_path}/run"
    assert url.startswith("local:///")
    for last in (2, 4):
        hooks = [rh.StopAtStepHook(last_step=last)]
        with rh.MonitoredTrainingSession(checkpoint_dir=url, hooks=hooks) as session:
            while not session.should_stop():
                session.run(model.train_op)
    assert rh.latest_checkpoint(url) == f"{url}/model.ckpt-4"
    assert rh.latest_checkpoint(tmp_path / "run") == f"{tmp_path}/run/model.ckpt-4"
    assert [it.name for it in tmp_path.iterdir()] == ["run"]
    assert [str(it.path) for it in rh.events.read(url).values()] == [url]


def test_other_spellings_of_a_url_are_the_same_place(model):
    directory = f"memory://{uuid4()}/run"
    manifests = []
    for spelled in (
        directory,
        directory.replace("/run", "//run/"),
        directory.upper()[:6] + directory[6:],
    ):
        hooks = [rh.StopAtStepHook(last_step=3)]
        with rh.MonitoredTrainingSession(checkpoint_dir=spelled, hooks=hooks) as session:
            while not session.should_stop():
                session.run(model.train_op)
        assert rh.latest_checkpoint(spelled) == f"{directory}/model.ckpt-3"
        manifests.append(open_store(directory).read("model.ckpt-3/checkpoint.safetensors"))
    assert len(set(manifests)) == 1  # a checkpoint that was restored is not saved again
