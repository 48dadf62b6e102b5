"""Coordinators, looper threads and queue runners: what comes of them is the same here."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow

from runhooks.tensorflow import train as ours

tf = tensorflow.compat.v1
CORNERS: dict[str, Callable[[Any, str], Any]] = {}

TIMEOUT = 30  # seconds that a broken test waits before it fails


def corner(function):
    CORNERS[function.__name__] = function
    return function


def outcome(function, train, folder):
    """What comes of a corner."""
    folder.mkdir()
    with tensorflow.Graph().as_default():
        return function(train, str(folder))


def raised(call, *args, **kwargs):
    """What ``call`` raises, as text; None if it does not."""
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None


def start(target, *args, **kwargs):
    thread = threading.Thread(target=target, args=args, kwargs=kwargs, daemon=True)
    thread.start()
    return thread


def report(coord, error, how):
    """Tell ``coord`` of ``error`` from the handler of it."""
    try:
        raise error
    except type(error) as caught:
        coord.request_stop(sys.exc_info() if how == "exc_info" else caught)


# Stopping


@corner
def one_asks_and_all_hear(train, folder):
    coord, heard = train.Coordinator(), []
    answers = [coord.should_stop(), coord.wait_for_stop(0.01), coord.joined]
    threads = [start(lambda: heard.append(coord.wait_for_stop(TIMEOUT))) for _ in range(3)]
    start(coord.request_stop).join(TIMEOUT)
    answers += [coord.wait_for_stop(timeout=0), coord.should_stop(), coord.join(threads)]
    return answers, heard, coord.joined


@corner
def joined_without_threads_and_again(train, folder):
    coord = train.Coordinator()
    for threads in (None, [], (), iter([]), [threading.Thread()]):
        coord.join(threads)
    return coord.joined, coord.should_stop()


@corner
def threads_that_end_by_themselves(train, folder):
    coord, go = train.Coordinator(), threading.Event()
    threads = [start(go.wait, TIMEOUT) for _ in range(3)]
    coord.register_thread(threads[0])
    threading.Timer(0.05, go.set).start()
    coord.join(threads[1:])
    return [thread.is_alive() for thread in threads], coord.should_stop()


def deaf(coord, **kwargs):
    """What ``join`` raises if one thread does not stop; whether it was forgotten after that."""
    release = threading.Event()
    threads = [start(release.wait, TIMEOUT), start(coord.wait_for_stop, TIMEOUT)]
    threads[0].name = "deaf"
    coord.register_thread(threads[0])
    try:
        error = raised(coord.join, threads, **kwargs)
        again = raised(coord.join, stop_grace_period_secs=0)
    finally:
        release.set()
        threads[0].join()
    if error is not None and "threads still running" in error:
        error = [word in error for word in ("RuntimeError", "Coordinator stopped", "deaf")]
    return error, again, coord.joined


for secs in (-1, 0, 1e-10, 0.002, 0.05):
    for ignore in (False, True):

        def thread_does_not_stop(train, folder, secs=secs, ignore=ignore):
            coord = train.Coordinator()
            coord.request_stop()
            return deaf(coord, stop_grace_period_secs=secs, ignore_live_threads=ignore)

        CORNERS[f"thread_does_not_stop_{secs}_{ignore}"] = thread_does_not_stop


@corner
def thread_does_not_stop_after_an_error(train, folder):
    coord = train.Coordinator()
    report(coord, ValueError("the cause"), "error")
    return deaf(coord, stop_grace_period_secs=0)


# Errors

KINDS = (ValueError, KeyboardInterrupt, SystemExit, StopIteration, tf.errors.DataLossError)


def reporting(how, clean_types):
    """What comes of each kind of error, reported in the way of ``how``."""

    def play(train, folder):
        told = []
        for kind in KINDS + tuple(clean_types or ()) + (tf.errors.OutOfRangeError,):
            coord = train.Coordinator(clean_stop_exception_types=clean_types)
            error = kind(None, None, "é") if issubclass(kind, tf.errors.OpError) else kind("é")
            start(report, coord, error, how).join()
            told.append((kind.__name__, coord.should_stop()))
            for ask in (coord.raise_requested_exception, coord.join, coord.join):
                try:
                    told.append(ask())
                except BaseException as caught:  # noqa: BLE001 - it is what is compared
                    told.append(caught is error)
        return told

    return play


for how in ("error", "exc_info"):
    for clean_types in (None, (), [StopIteration], {KeyError, ValueError}):
        CORNERS[f"reported_{how}_{clean_types}"] = reporting(how, clean_types)


@corner
def first_error_counts(train, folder):
    coord = train.Coordinator()
    ask, rest = threading.Event(), threading.Event()

    def work(heard, error, tell):
        heard.wait(TIMEOUT)
        with coord.stop_on_exception():
            raise error
        tell.set()

    threads = [
        start(work, ask, RuntimeError("First \u5432"), rest),
        start(work, rest, RuntimeError("Too late"), threading.Event()),
    ]
    ask.set()
    return raised(coord.join, threads)


@corner
def error_after_a_plain_request(train, folder):
    coord = train.Coordinator()
    coord.request_stop()
    report(coord, ValueError("late"), "error")
    return raised(coord.join), raised(coord.raise_requested_exception)


@corner
def errors_after_join(train, folder):
    coord, told = train.Coordinator(), []
    for _ in range(2):
        coord.join([])
        for how in ("error", "exc_info"):
            told.append(raised(report, coord, RuntimeError("Too late"), how))
            told.append(raised(report, coord, tf.errors.OutOfRangeError(None, None, "end"), how))
        with coord.stop_on_exception():
            pass
        coord.request_stop()
        told += [coord.joined, coord.should_stop(), raised(coord.join)]
        coord.clear_stop()
        told += [coord.joined, coord.should_stop(), raised(coord.raise_requested_exception)]
        report(coord, RuntimeError("After clear"), "error")
        told.append(raised(coord.join, []))
        coord.clear_stop()
    return told


@corner
def blocks(train, folder):
    coord = train.Coordinator()

    def returns():
        with coord.stop_on_exception():
            return 5

    @coord.stop_on_exception()
    def raises():
        raise ValueError("bad")

    return returns(), coord.should_stop(), raises(), coord.should_stop(), raised(coord.join)


# Looper threads


def looping(secs):
    def play(train, folder):
        left = []
        for give in (
            lambda coord, n: {"args": (coord, n)},
            lambda coord, n: {"kwargs": {"coord": coord, "n": n}},
            lambda coord, n: {"args": [coord], "kwargs": {"n": n}},
        ):
            coord, n = train.Coordinator(), [3]
            looper = train.LooperThread.loop(coord, secs, target=count_down, **give(coord, n))
            coord.join([looper])
            left += [*n, looper.daemon, looper.is_alive()]
        return left

    return play


def count_down(coord, n):
    if n[0] == 0:
        coord.request_stop()
    else:
        n[0] -= 1


CORNERS |= {f"looper_{secs}": looping(secs) for secs in (None, 0, 0.001)}


# Queue runners


def all_of(session, element, coord, threads):
    """What a queue gives until it is empty; the threads have ended then."""
    made = []
    try:
        while not coord.should_stop() or threads is None:
            made.append(session.run(element).tolist())
    except tf.errors.OutOfRangeError as end:
        coord.request_stop(end)
    finally:
        coord.request_stop()
        coord.join(threads)
    return made


def reading(make):
    def play(train, folder):
        element = make()
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        coord = train.Coordinator()
        with tf.Session() as session:
            session.run(init)
            threads = train.start_queue_runners(coord=coord)
            whole = all_of(session, element, coord, threads)
        with train.MonitoredSession() as session:
            legacy = tf.train.start_queue_runners(session, coord)
            again = []
            while not session.should_stop():
                again.append(session.run(element).tolist())
        return len(threads), [t.is_alive() for t in threads], sorted(whole), legacy, sorted(again)

    return play


def numbers():
    return tf.train.range_input_producer(6, num_epochs=2, shuffle=False).dequeue()


CORNERS |= {
    "range_input_producer": reading(numbers),
    "input_producer": reading(
        lambda: tf.train.input_producer(tf.constant([[1, 2]]), num_epochs=3).dequeue()
    ),
    "batch": reading(lambda: tf.train.batch([numbers()], 5, allow_smaller_final_batch=True)),
    "shuffle_batch": reading(
        lambda: tf.train.shuffle_batch([numbers()], 1, 20, min_after_dequeue=5, num_threads=2)
    ),
}


@corner
def queue_runner_of_a_coordinator_fails(train, folder):
    queue = tf.FIFOQueue(2, tf.float32)
    bad = tf.check_numerics(tf.constant(float("nan")), "bad")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(bad)])
    with tf.Session() as session:
        coord = train.Coordinator()
        threads = runner.create_threads(session, coord=coord, daemon=True, start=True)
        coord.wait_for_stop(TIMEOUT)
        return raised(coord.join, threads).partition(" ")[0]


@pytest.mark.parametrize("name", CORNERS)
def test_threads_do_the_same(name, tmp_path):
    theirs = outcome(CORNERS[name], tf.train, tmp_path / "theirs")
    assert outcome(CORNERS[name], ours, tmp_path / "ours") == theirs


def test_looper_of_ours_works_for_a_coordinator_of_tensorflow():
    coord, n = tf.train.Coordinator(), [3]
    ours.LooperThread.loop(coord, 0.001, target=count_down, args=(coord, n))
    coord.join()
    assert n == [0]
