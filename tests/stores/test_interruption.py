"""A Ctrl-C while a store does not answer: nobody waits for it any longer."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks import stores
from runhooks.stores import RetryPolicy, open_store
from runhooks.stores.interruption import forget_interrupt, interrupt

LIMIT_SECS = 120
PROGRAM = Path(__file__).with_name("training_program.py")
FOR_EVER = RetryPolicy(secs=1e6, first_wait_secs=0.01, longest_wait_secs=1e6)

# Nothing but the second Ctrl-C ends this in time.
PATIENT = """
import runpy, sys
from runhooks import stores
stores.set_retry_policy(stores.RetryPolicy(secs=1e6))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def silence(proxy):
    """Nobody who writes is answered from now on; ``silence`` returns when somebody has tried."""
    arrived = threading.Event()

    def begin(fault, method="PUT"):
        def decide(asked, path):
            if not asked.startswith(method):
                return None
            arrived.set()
            return fault

        arrived.clear()
        proxy.decide = decide
        return lambda: arrived.wait(LIMIT_SECS)

    return begin


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "saver"), [("hang", ""), ("503", "asynchronous")])
def test_the_second_ctrl_c_ends_a_training(bucket, silence, fault, saver):
    words = [
        sys.executable,
        "-c",
        PATIENT,
        str(PROGRAM),
        f"{bucket}/run",
        "1000000",
        saver,
    ]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    with process:
        while int(process.stdout.readline()) < 7:
            pass
        assert silence(fault, "")()
        process.send_signal(signal.SIGINT)
        while "press Ctrl-C again" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=LIMIT_SECS)[1]
    assert process.returncode == -signal.SIGINT
    assert told.count("events were lost as the process ended") == 1
    assert "the event writer of" in told


def interrupt_once(arrived):
    def act():
        arrived()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=act).start()


def test_a_request_is_interrupted_and_so_is_what_follows(bucket, proxy, silence):
    store = open_store(f"{bucket}/run", FOR_EVER)
    interrupt_once(silence("hang", ""))
    with pytest.raises(KeyboardInterrupt):
        store.put("k", b"content")
    for ask in (lambda: store.read("k"), store.objects, lambda: store.delete(["k"])):
        with pytest.raises(TimeoutError, match="interrupted before the store answered") as caught:
            ask()
        assert caught.value.filename.startswith(f"{bucket}/run")
    forget_interrupt()
    interrupt_once(silence("hang", ""))
    with pytest.raises(KeyboardInterrupt):
        store.put("k", b"content")
    # It is well again before the time for the clean-up is over.
    proxy.decide = lambda method, path: None
    store.put("k", b"the last")
    assert store.read("k") == b"the last"


def test_after_a_ctrl_c_nothing_is_repeated_until_the_store_answers(bucket, proxy, silence):
    store = open_store(f"{bucket}/run", RetryPolicy(60, 0.01, 0.01))
    interrupt_once(silence("503"))
    with pytest.raises(KeyboardInterrupt):
        open_store(f"{bucket}/run", FOR_EVER).put("k", b"content")
    before = len(proxy.requests)
    with pytest.raises(OSError, match="Reduce your request rate"):
        store.put("k", b"content")
    assert len(proxy.requests) == before + 1
    assert store.objects() == []
    forget_interrupt()
    proxy.fail("503", 3)
    store.put("k", b"content")
    assert store.read("k") == b"content"


def test_after_a_ctrl_c_the_first_request_to_an_open_store_is_not_repeated(bucket, proxy):
    store = open_store(f"{bucket}/run", RetryPolicy(60, 0.01, 0.01))
    interrupt()
    proxy.fail("503", 3)
    with pytest.raises(OSError, match="Reduce your request rate"):
        store.put("k", b"content")
    assert len(proxy.requests) == 1


@pytest.mark.slow
def test_reading_in_several_threads_is_interrupted(bucket, proxy, silence):
    store = open_store(f"{bucket}/run", FOR_EVER)
    content = np.arange(4 << 20, dtype=np.int64).view(np.uint8)
    store.put("large", content)
    interrupt_once(silence("hang", "GET"))
    with pytest.raises(KeyboardInterrupt):
        store.read_into("large", memoryview(np.empty_like(content)))


def test_waiting_for_events_is_interrupted_and_what_is_lost_is_counted(bucket, proxy, silence):
    before = stores.default_policy()
    stores.set_retry_policy(FOR_EVER)
    try:
        writer = rh.summary.FileWriter(f"{bucket}/run")
    finally:
        stores.set_retry_policy(before)
    for step in range(5):
        writer.scalar("loss", step, step)
    interrupt_once(silence("503"))
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    with pytest.raises(OSError, match="Reduce your request rate") as caught:
        writer.close()
    assert f"the event writer of '{bucket}/run' lost 5 items" in str(caught.value)
    assert "tries again" not in str(getattr(caught.value, "__notes__", []))


def test_a_new_session_is_patient_again(bucket, proxy, silence):
    store = open_store(f"{bucket}/run", FOR_EVER)
    interrupt_once(silence("hang", ""))
    with pytest.raises(KeyboardInterrupt):
        store.objects()
    proxy.fail("503", 2)
    graph = rh.graph(lambda weights: weights + 1, weights=np.zeros(3))
    with graph.as_default():
        hooks = [rh.StopAtStepHook(last_step=3)]
        with rh.MonitoredTrainingSession(checkpoint_dir=f"{bucket}/new", hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    assert rh.load(f"{bucket}/new", "weights").tolist() == [3, 3, 3]
