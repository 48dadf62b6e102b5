"""Session managers: what comes of them is the same here, and said for the same reasons."""

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow

from runhooks.tensorflow import train as ours

tf = tensorflow.compat.v1
CORNERS: dict[str, Callable[[Any, str], Any]] = {}

WAIT_SECS = 0.05
#: What a program may look for in an error.
TERMS = (
    "you must also pass a local_init_op ",
    "both checkpoint_dir and checkpoint_filename_with_path",
    "no init_op or init_fn or local_init_op was given",
    "Init operations did not make model ready for local_init",
    "Init operations did not make model ready. ",
    "Session was not ready after waiting",
    "uninitialized",
    "not a valid checkpoint",
)


def corner(function):
    CORNERS[function.__name__] = function
    return function


def outcome(function, train, folder):
    """What comes of a corner."""
    folder.mkdir()
    with tensorflow.Graph().as_default():
        return function(train, str(folder))


def raised(call, *args, **kwargs):
    """What ``call`` raises: its kind, and what of its text matters; None if it does not."""
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is what is compared
        text = str(error)
        told = [term for term in TERMS if term in text]
        if isinstance(error, tf.errors.DeadlineExceededError):
            return "DeadlineExceededError", told[:1]  # here, it says what is lacking as well
        told += re.findall(r"Init op: \w+|init fn: \w+|Variables not initialized: [^\n]*", text)
        return type(error).__name__, told
    return None


def variables(given=2):
    """A global variable, and a local one that is made of it."""
    v = tf.get_variable("v", initializer=given, use_resource=False)
    w = tf.get_variable(
        "w", initializer=v.value(), use_resource=False, collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    return v, w


def lacking(*those):
    return tf.report_uninitialized_variables(*those)


def state_of(session, *those):
    """The values of variables, None for what has none; of an open session of TensorFlow's."""
    assert isinstance(session, tf.Session)
    return [
        session.run(one).tolist() if tf.is_variable_initialized(one).eval(session=session) else None
        for one in those
    ]


def save(folder, value=1, steps=(None,), name="v"):
    """Checkpoints of a variable in ``folder``; the path of the last one."""
    with tensorflow.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable(name, initializer=value)
        session.run(v.initializer)
        saver = tf.train.Saver()
        return [saver.save(session, f"{folder}/saved", step) for step in steps][-1]


# Initializing


@corner
def feeds_of_initial_values(train, folder):
    fed = tf.placeholder(tf.float32, [3])
    v = tf.Variable(fed, name="v")
    w = tf.Variable(fed, name="w", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    manager = train.SessionManager(
        local_init_op=w.initializer,
        ready_op=lacking(),
        local_init_run_options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
        local_init_feed_dict={fed: [4.0, 5.0, 6.0]},
    )
    session = manager.prepare_session("", v.initializer, init_feed_dict={fed: [1.0, 2.0, 3.0]})
    return state_of(session, v, w)


@corner
def init_fn(train, folder):
    v, w = variables()
    manager = train.SessionManager(ready_op=lacking())
    called = []

    def initialize(session):
        called.append(state_of(session, v, w))
        session.run(w.initializer)

    session = manager.prepare_session("", init_op=v.initializer, init_fn=initialize)
    return called, state_of(session, v, w)


@corner
def config_graph_and_default_session(train, folder):
    v, _ = variables()
    manager = train.SessionManager(graph=v.graph)
    with tensorflow.Graph().as_default():
        config = tf.ConfigProto(device_count={"CPU": 2})
        session = manager.prepare_session("", init_op="v/Assign", config=config)
    with session:
        return v.eval(), session.graph is v.graph, len(session.list_devices())


def readiness(ready, ready_for_local_init, local_init, init):
    """What comes of each kind of session for a manager with these operations."""

    def play(train, folder):
        v, w = variables()
        ops = {
            None: lambda: None,
            "all": lacking,
            "global": lambda: lacking([v]),
            "assert": lambda: tf.assert_variables_initialized([v]),
            "names": lambda: tf.constant(["a", "b"]),
            "number": lambda: tf.constant([1, 2]),
            "nothing": tf.no_op,
            "v": lambda: v.initializer,
            "w": lambda: w.initializer,
            "[w]": lambda: [w.initializer],
        }
        saver, path = tf.train.Saver([v]), save(folder)
        made = []
        try:
            manager = train.SessionManager(
                ops[local_init](),
                ops[ready](),
                ops[ready_for_local_init](),
                recovery_wait_secs=WAIT_SECS,
            )
        except ValueError as error:
            return [term for term in TERMS if term in str(error)]
        init_op = ops[init]()

        def prepared(**kwargs):
            made.append(state_of(manager.prepare_session("", init_op, **kwargs), v, w))

        def recovered(**kwargs):
            session, initialized = manager.recover_session("", saver, **kwargs)
            made.append((state_of(session, v, w), initialized))

        def waited(**kwargs):
            made.append(state_of(manager.wait_for_session("", **kwargs), v, w))

        errors = [
            raised(prepared),
            raised(prepared, saver=saver, checkpoint_dir=folder),
            raised(recovered),
            raised(recovered, checkpoint_dir=folder),
            raised(recovered, checkpoint_filename_with_path=path),
            raised(waited, max_wait_secs=0),
            raised(waited, max_wait_secs=2 * WAIT_SECS),
        ]
        return made, errors

    return play


for given in [
    (None, None, None, None), (None, None, None, "v"), ("all", None, None, "v"),
    ("all", None, "w", None), ("all", None, "[w]", None), ("all", "all", "w", "v"),
    ("all", "global", "w", "v"), ("all", "global", "[w]", "v"), ("all", "global", "w", None),
    ("global", "global", "w", None), ("assert", None, None, "v"), ("assert", None, None, "nothing"),
    ("assert", "assert", "w", "v"), ("assert", "assert", "w", "nothing"),
    ("names", None, None, "v"), ("number", None, None, "v"), ("nothing", None, None, "v"),
    ("all", "global", None, "v"), ("all", "names", "w", "v"), ("global", None, None, "nothing"),
]:  # fmt: skip
    CORNERS["_".join(map(str, given))] = readiness(*given)


# Checkpoints


def recovering(**kwargs):
    """What comes of recovering a variable from what ``prepare_folder`` leaves."""

    def play(train, folder, prepare_folder):
        prepare_folder(folder)
        v, _ = variables()
        manager = train.SessionManager(ready_op=lacking([v]), recovery_wait_secs=WAIT_SECS)
        saver, made = tf.train.Saver([v]), []
        places = {name: place.format(folder) for name, place in kwargs.items()}

        def recover():
            session, initialized = manager.recover_session("", saver, **places)
            made.append((state_of(session, v), initialized))

        def prepare():
            made.append(state_of(manager.prepare_session("", v.initializer, saver, **places), v))

        errors = raised(recover), raised(prepare)
        return made, errors, [Path(path).name for path in saver.last_checkpoints]

    return play


def files_are_gone(folder):
    for file in Path(save(folder)).parent.glob("saved*"):
        file.unlink()


def data_is_empty(folder):
    save(folder)
    for file in Path(folder).glob("saved.data*"):
        file.write_bytes(b"")


FOLDERS = {
    "nothing": lambda folder: None,
    "one": save,
    "several": lambda folder: save(folder, steps=(1, 2, 3)),
    "other_variables": lambda folder: save(folder, name="other"),
    "files_are_gone": files_are_gone,
    "data_is_empty": data_is_empty,
    "state_is_garbage": lambda folder: Path(folder, "checkpoint").write_text("garbage {{{"),
    "state_is_empty": lambda folder: Path(folder, "checkpoint").write_text(""),
    "no_folder": shutil.rmtree,
}
PLACES = {
    "by_folder": recovering(checkpoint_dir="{}"),
    "by_path": recovering(checkpoint_filename_with_path="{}/saved"),
    "by_both": recovering(checkpoint_dir="{}", checkpoint_filename_with_path="{}/saved"),
    "by_none": recovering(),
}
for kind, prepare_folder in FOLDERS.items():
    for place, recover in PLACES.items():

        def recovers(train, folder, recover=recover, prepare_folder=prepare_folder):
            return recover(train, folder, prepare_folder)

        CORNERS[f"{kind}_{place}"] = recovers


@corner
def restored_model_is_not_initialized(train, folder):
    save(folder)
    v, _ = variables()
    manager, called = train.SessionManager(ready_op=lacking([v])), []
    session = manager.prepare_session(
        "", v.initializer, tf.train.Saver([v]), folder, init_fn=called.append
    )
    return state_of(session, v), called


@corner
def loaded_model_is_restored_after_its_initializers(train, folder):
    save(folder)
    v, _ = variables()
    tf.add_to_collection("saved_model_initializers", v.assign(77))
    manager = train.SessionManager(ready_op=lacking([v]))
    return [
        state_of(manager.recover_session("", tf.train.Saver([v]), **place)[0], v)
        for place in (
            {"checkpoint_dir": folder},
            {"checkpoint_filename_with_path": f"{folder}/saved"},
        )
    ]


@corner
def some_variables_are_not_in_the_checkpoint(train, folder):
    save(folder)
    v, _ = variables()
    x = tf.get_variable("x", initializer=5)
    manager, saver = train.SessionManager(ready_op=lacking([v, x])), tf.train.Saver([v])
    session, initialized = manager.recover_session("", saver, folder)
    error = raised(manager.prepare_session, "", x.initializer, saver, folder)
    return state_of(session, v, x), initialized, error


@corner
def checkpoint_is_waited_for(train, folder):
    v, _ = variables()
    manager = train.SessionManager(ready_op=lacking([v]), recovery_wait_secs=WAIT_SECS)
    saver, wait = tf.train.Saver([v]), {"checkpoint_dir": folder, "wait_for_checkpoint": True}
    error = raised(manager.prepare_session, "", saver=saver, max_wait_secs=3 * WAIT_SECS, **wait)
    thread = threading.Timer(2 * WAIT_SECS, save, [folder])
    thread.start()
    session, initialized = manager.recover_session("", saver, max_wait_secs=30, **wait)
    thread.join()
    return error, state_of(session, v), initialized


# Waiting for others


@corner
def session_that_others_make_ready(train, folder):
    v, w = variables()
    manager = train.SessionManager(
        w.initializer, lacking(), lacking([v]), recovery_wait_secs=WAIT_SECS
    )
    server = tf.train.Server.create_local_server()
    with tf.Session(server.target) as other:
        thread = threading.Timer(2 * WAIT_SECS, other.run, [v.initializer])
        thread.start()
        session = manager.wait_for_session(server.target, max_wait_secs=None)
        thread.join()
    return state_of(session, v, w)


@corner
def time_that_is_waited(train, folder):
    variables()
    manager = train.SessionManager(ready_op=lacking(), recovery_wait_secs=WAIT_SECS)
    begin = time.monotonic()
    error = raised(manager.wait_for_session, "", None, 4 * WAIT_SECS)
    return error, time.monotonic() - begin >= 2 * WAIT_SECS


@pytest.mark.parametrize("name", CORNERS)
def test_sessions_are_made_the_same(name, tmp_path):
    theirs = outcome(CORNERS[name], tf.train, tmp_path / "theirs")
    assert outcome(CORNERS[name], ours, tmp_path / "ours") == theirs
