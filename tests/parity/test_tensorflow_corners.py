"""The corners of ``tf.compat.v1.train``, one function each: what comes of it is the same here."""

import collections
from pathlib import Path

import numpy as np
import pytest
import tensorflow

from runhooks.tensorflow import train as ours

tf = tensorflow.compat.v1
CORNERS = {}

Pair = collections.namedtuple("Pair", ["first", "second"])


def corner(function):
    CORNERS[function.__name__] = function
    return function


def outcome(function, train, folder):
    """What comes of a corner: its answer, or the kind of its error."""
    with tensorflow.Graph().as_default():
        try:
            return plain(function(train, str(folder)))
        except Exception as error:  # noqa: BLE001 - it is what is compared
            kind, text = type(error).__name__, str(error)
    assert "finalized" not in text, "the corner builds its graph too late"
    return kind


def plain(value):
    if isinstance(value, Pair):
        return Pair(*map(plain, value))
    if isinstance(value, dict):
        return type(value).__name__, {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value) if isinstance(value, float) else value  # NaN is not equal to NaN


def step_op(by=1):
    return tf.assign_add(tf.train.get_or_create_global_step(), by)


def recorder(train, trace, fetches=None, feed_dict=None, options=None, name=""):
    class Hook(train.SessionRunHook):
        def begin(self):
            trace.append(f"{name}begin")

        def after_create_session(self, session, coord):
            trace.append(f"{name}create")

        def before_run(self, run_context):
            if (fetches, feed_dict, options) != (None, None, None):
                return train.SessionRunArgs(fetches, feed_dict, options)
            return None

        def after_run(self, run_context, run_values):
            trace.append(run_values.results)

        def end(self, session):
            trace.append(f"{name}end")

    return Hook()


# Fetches and feeds


@corner
def fetches_of_every_shape(train, folder):
    a, b, v = tf.constant(1), tf.constant([2.0, 3.0]), tf.get_variable("v", initializer=4)
    op = step_op().op
    shapes = [
        a, "Const:0", v, op, "Const", [], [a], (a, b), Pair(a, [b, op]), {"x": a, "y": {"z": (b,)}},
        collections.OrderedDict([("q", b), ("p", a)]), [a, a, [a]], {1: a, None: b}, (), {},
    ]  # fmt: skip
    with train.MonitoredSession() as session:
        return [session.run(shape) for shape in shapes]


@corner
def fetches_of_hooks_are_dicts_and_named_tuples(train, folder):
    a, b, trace = tf.constant(1), tf.constant(2), []
    hooks = [recorder(train, trace, Pair(a, {"b": b})), recorder(train, trace, {"a": [a, (b,)]})]
    with train.MonitoredSession(hooks=hooks) as session:
        return session.run({"mine": Pair(b, a)}), trace


@corner
def sparse_tensors(train, folder):
    sparse = tf.SparseTensor([[0, 1]], [7], [2, 3])
    with train.MonitoredSession() as session:
        values = session.run([sparse, sparse.values])
        return values[0].indices, values[0].values, values[1]


def fed(value, dtype, shape):
    def play(train, folder):
        tensor = tf.placeholder(dtype, shape, name="x")
        same = tf.identity(tensor)
        with train.MonitoredSession() as session:
            return session.run(same, {tensor: value})

    return play


for number, (value, dtype, shape) in enumerate(
    [
        (1, tf.float32, []), (1.5, tf.int32, []), (300, tf.int8, []), ([1, 2], tf.float32, [2]),
        ([1, 2], tf.float32, [3]), (np.ones((2, 3)), tf.float32, [None, 3]),
        (np.ones((2, 3)), tf.float32, [None, 4]), (np.ones(3), tf.float32, None),
        (np.ones(3), tf.float32, [None, None]), ("x", tf.float32, []), (None, tf.float32, []),
        ([[1], [2, 3]], tf.float32, None), (True, tf.int32, []), (np.float64(2), tf.float16, []),
    ]
):  # fmt: skip
    CORNERS[f"fed_{number}"] = fed(value, dtype, shape)


def fetched_array_is_not_the_model(use_resource, fetched):
    def play(train, folder):
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
        fetch, add = fetched(v), v.assign_add([1.0, 1.0]).op
        with train.MonitoredSession() as session:
            before, both = session.run(fetch), session.run([v, {"it": fetch}])
            session.run(add)
            after, written = session.run(fetch), session.run(fetch)
            written *= 0
            return before, both, after, session.run(fetch), session.run(v)

    return play


for name, fetched in {
    "itself": lambda v: v,
    "read": lambda v: v.read_value(),
    "identity": tf.identity,
    "reshaped": lambda v: tf.reshape(v, [2, 1]),
    "constant": lambda v: tf.constant([5.0, 6.0]),
}.items():
    for kind, use_resource in {"resource": True, "reference": False}.items():
        CORNERS[f"fetched_{name}_of_{kind}_is_not_the_model"] = fetched_array_is_not_the_model(
            use_resource, fetched
        )


@corner
def any_tensor_is_fed_by_name(train, folder):
    a = tf.constant(1, name="a")
    b = a + 1
    with train.MonitoredSession() as session:
        return session.run([b, "a:0"], {"a:0": 5}), session.run(b)


def raising(fetch, feed=None):
    def play(train, folder):
        tf.placeholder(tf.float32, [], name="x")
        other = tensorflow.Graph()
        with other.as_default():
            foreign = tf.constant(1)
        with train.MonitoredSession() as session:
            return session.run(fetch(foreign), None if feed is None else feed(foreign))

    return play


CORNERS |= {
    "fetch_unknown": raising(lambda f: "nothing:0"),
    "fetch_unknown_operation": raising(lambda f: "nothing"),
    "fetch_none": raising(lambda f: None),
    "fetch_number": raising(lambda f: 3),
    "fetch_object_in_list": raising(lambda f: ["x:0", object()], lambda f: {"x:0": 1}),
    "fetch_of_other_graph": raising(lambda f: f),
    "feed_of_other_graph": raising(lambda f: "x:0", lambda f: {f: 1}),
    "feed_unknown": raising(lambda f: "x:0", lambda f: {"nothing:0": 1}),
    "feed_operation": raising(lambda f: "x:0", lambda f: {"x": 1}),
    "placeholder_unfed": raising(lambda f: "x:0"),
}


@corner
def hooks_and_caller_feed_what_is_theirs(train, folder):
    x, y, trace = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, []), []
    difference = x - y
    hooks = [train.FeedFnHook(lambda: {x: 1.0}), recorder(train, trace, x)]
    with train.MonitoredSession(hooks=hooks) as session:
        return session.run(difference, {y: 3.0}), trace


# Hooks


@corner
def hooks_are_a_generator(train, folder):
    op, trace = step_op(), []
    given = (recorder(train, trace, name=name) for name in "ab")
    with train.MonitoredSession(hooks=given) as session:
        session.run(op)
    return trace


@corner
def step_is_set_back(train, folder):
    step = tf.train.get_or_create_global_step()
    op, back, trace = step_op(), tf.assign(step, 1), []
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=4)]) as session:
        while not session.should_stop():
            session.run(op)
            if len(trace) == 2:
                session.run(back)
            trace.append(1)
    return len(trace)


@corner
def hook_looks_at_the_context(train, folder):
    op, seen = step_op(), []

    class Hook(train.SessionRunHook):
        def before_run(self, run_context):
            seen.append(run_context.original_args.fetches is op)
            seen.append(run_context.original_args.feed_dict)
            seen.append(isinstance(run_context.session, tf.Session))
            seen.append(run_context.session.graph is tf.get_default_graph())
            seen.append(run_context.stop_requested)

        def after_run(self, run_context, run_values):
            seen.append(run_values.results)
            seen.append(type(run_values.options).__name__)
            seen.append(type(run_values.run_metadata).__name__)
            run_context.request_stop()
            seen.append(run_context.stop_requested)

    with train.MonitoredSession(hooks=[Hook()]) as session:
        while not session.should_stop():
            session.run(op)
    return seen


@corner
def options_are_merged(train, folder):
    a, seen = tf.constant(42, name="a"), []
    one = tf.RunOptions(trace_level=2, timeout_in_ms=30000, report_tensor_allocations_upon_oom=True)
    two = tf.RunOptions(trace_level=3, timeout_in_ms=60000, output_partition_graphs=True)

    class Hook(train.SessionRunHook):
        def __init__(self, options):
            self.options = options

        def before_run(self, run_context):
            return train.SessionRunArgs(None, None, options=self.options)

        def after_run(self, run_context, run_values):
            seen.append(str(run_values.options))
            seen.append(len(run_values.run_metadata.partition_graphs) > 0)

    with train.MonitoredSession(hooks=[Hook(one), Hook(two)]) as session:
        own = tf.RunOptions(inter_op_thread_pool=0, timeout_in_ms=40000)
        metadata = tf.RunMetadata()
        value = session.run(a, options=own, run_metadata=metadata)
        return value, seen, len(metadata.step_stats.dev_stats)


# Scaffolds and creators


@corner
def scaffold_defaults(train, folder):
    tf.get_variable("v", initializer=1)
    scaffold = train.Scaffold()
    scaffold.finalize()
    names = [
        "init_op",
        "ready_op",
        "ready_for_local_init_op",
        "local_init_op",
        "summary_op",
        "saver",
    ]
    kinds = [type(getattr(scaffold, name)).__name__ for name in names]
    keys = [getattr(tf.GraphKeys, name.upper(), "savers") for name in names]
    sizes = [len(tf.get_collection(key)) for key in keys]
    is_final = tf.get_default_graph().finalized
    return kinds, sizes, scaffold.init_fn, scaffold.init_feed_dict, is_final


@corner
def second_scaffold_finds_what_the_first_made(train, folder):
    tf.get_variable("v", initializer=1)
    one, two = train.Scaffold(), train.Scaffold()
    one.finalize()
    two.finalize()
    names = ["init_op", "ready_op", "local_init_op", "saver", "ready_for_local_init_op"]
    return [getattr(one, name) is getattr(two, name) for name in names]


@corner
def scaffold_takes_what_it_is_given(train, folder):
    tf.get_variable("v", initializer=1)
    saver = tf.train.Saver()
    first = train.Scaffold(
        init_op=2, init_feed_dict=3, init_fn=lambda scaffold, session: (scaffold.init_op, session),
        ready_op=5, ready_for_local_init_op=6, local_init_op=7, local_init_feed_dict=8, saver=saver,
    )  # fmt: skip
    copy = train.Scaffold(copy_from_scaffold=first, init_op=9)
    copy.finalize()
    return (
        *(copy.init_op, copy.init_feed_dict, copy.init_fn("s"), copy.ready_op),
        *(copy.ready_for_local_init_op, copy.local_init_op, copy.local_init_feed_dict),
        copy.saver is saver,
    )


@corner
def two_items_in_a_collection(train, folder):
    tf.get_variable("v", initializer=1)
    for _ in range(2):
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    train.Scaffold().finalize()


@corner
def init_op_is_fed(train, folder):
    x = tf.placeholder(tf.int32, [])
    v = tf.Variable(x, validate_shape=False, name="v", use_resource=True)
    scaffold = train.Scaffold(init_feed_dict={x: 6})
    with train.MonitoredSession(train.ChiefSessionCreator(scaffold)) as session:
        return session.run(v)


@corner
def local_variables_and_tables(train, folder):
    v = tf.get_variable("v", initializer=3, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    table = tensorflow.lookup.StaticHashTable(
        tensorflow.lookup.KeyValueTensorInitializer(["a"], [5]), -1
    )
    found = table.lookup(tf.constant(["a", "b"]))
    with train.MonitoredSession() as session:
        return session.run([v, found])


@corner
def local_init_op_of_the_users_own(train, folder):
    data = tf.data.Dataset.range(2)
    iterator = tf.data.make_initializable_iterator(data)
    element = iterator.get_next()
    scaffold = train.Scaffold(
        local_init_op=tf.group(iterator.initializer, train.Scaffold.default_local_init_op())
    )
    made = []
    with train.MonitoredSession(train.ChiefSessionCreator(scaffold)) as session:
        while not session.should_stop():
            made.append(session.run(element))
    return made


@corner
def session_is_not_ready(train, folder):
    tf.get_variable("v", initializer=1)
    with train.MonitoredSession(train.ChiefSessionCreator(train.Scaffold(init_op=tf.no_op()))):
        pass


@corner
def both_checkpoints_are_given(train, folder):
    tf.get_variable("v", initializer=1)
    train.ChiefSessionCreator(
        checkpoint_dir=folder, checkpoint_filename_with_path=f"{folder}/x"
    ).create_session()


@corner
def checkpoint_is_given_by_its_path(train, folder):
    v = tf.get_variable("v", initializer=1)
    op = tf.assign_add(v, 1)
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(v.initializer)
        session.run(op)
        path = saver.save(session, f"{folder}/by-hand")
    with train.SingularMonitoredSession(checkpoint_filename_with_path=path) as session:
        return session.run(v), isinstance(session.raw_session(), tf.Session)


@corner
def creator_fails_twice_and_then_works(train, folder):
    op, tries = step_op(), []

    class Creator(train.SessionCreator):
        def create_session(self):
            tries.append(1)
            if len(tries) < 3:
                raise tf.errors.AbortedError(None, None, "not yet")
            session = tf.Session()
            session.run(tf.get_collection("init")[0])
            return session

    tf.add_to_collection("init", tf.global_variables_initializer())
    with train.MonitoredSession(Creator()) as session:
        return session.run(op), len(tries)


@corner
def worker_waits_too_long(train, folder):
    tf.get_variable("v", initializer=1)
    train.WorkerSessionCreator(max_wait_secs=0).create_session()


@corner
def graph_is_final_while_it_runs(train, folder):
    session = train.MonitoredSession()
    during = tf.get_default_graph().finalized
    try:
        tf.constant(1)
    except RuntimeError:
        during = (during, "refused")
    session.close()
    return during, tf.get_default_graph().finalized, session.should_stop()


# Checkpoints and summaries


def loop(train, folder, steps, **arguments):
    arguments = {"log_step_count_steps": None, "save_summaries_steps": None, **arguments}
    values = []
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder, hooks=[train.StopAtStepHook(last_step=steps)], **arguments
    ) as session:
        while not session.should_stop():
            values.append(session.run(tf.get_collection("train")[0]))
    return values


def model():
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
    with tf.control_dependencies([tf.assign_add(v, [1.0, 2.0])]):
        tf.add_to_collection("train", tf.identity(step_op()))
    return v


def files_in(folder):
    """All but event files, and what hooks of ours keep beside a checkpoint."""
    names = [path.name for path in Path(folder).iterdir()]
    return sorted(name for name in names if "tfevents" not in name and ".hooks" not in name)


@corner
def checkpoints_of_a_run_and_its_resume(train, folder):
    model()
    made = [
        loop(train, folder, 4, save_checkpoint_steps=2),
        loop(train, folder, 8, save_checkpoint_steps=2),
    ]
    return made, files_in(folder)


def values_in(folder):
    reader = tf.train.load_checkpoint(folder)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@corner
def tensorflow_restores_it(train, folder):
    v = model()
    loop(train, folder, 3, save_checkpoint_steps=2)
    with tf.train.SingularMonitoredSession(checkpoint_dir=folder) as session:
        return session.run([v, tf.train.get_global_step()]), values_in(folder)


@corner
def it_restores_tensorflows(train, folder):
    v = model()
    loop(tf.train, folder, 3, save_checkpoint_steps=2)
    with train.SingularMonitoredSession(checkpoint_dir=folder) as session:
        return session.run([v, tf.train.get_global_step()])


@corner
def summaries(train, folder):
    model()
    x = tf.cast(tf.train.get_global_step(), tf.float32)
    with tf.control_dependencies([]):
        tf.summary.scalar("x", x * 0 + 1.5)
        tf.summary.histogram("h", tf.constant([1.0, 2.0, 2.5]))
    loop(train, folder, 7, save_summaries_steps=3, save_checkpoint_secs=None)
    found = []
    for path in sorted(Path(folder).glob("*tfevents*")):
        for event in tf.train.summary_iterator(str(path)):
            found += [(v.tag, v.SerializeToString()) for v in event.summary.value]
    # Not the steps: TensorFlow's hook reads them while the run increases the global step.
    return sorted(set(found))


# The end


@corner
def step_function(train, folder):
    op, x = step_op(), tf.placeholder(tf.int64, [])
    total = op + x

    def step_fn(step_context):
        value = step_context.run_with_hooks(total, {x: 10})
        if value > 12:
            step_context.request_stop()
        return value, step_context.session.run(op)

    made = []
    with train.MonitoredSession() as session:
        while not session.should_stop():
            made.append(session.run_step_fn(step_fn))
    return made


#: What comes of a corner under TensorFlow and here, where that is meant to differ.
DIFFERENT = {
    # TensorFlow walks the generator in begin, and finds nothing left in it after that.
    "hooks_are_a_generator": (
        ["abegin", "bbegin"],
        ["abegin", "bbegin", "acreate", "bcreate", None, None, "aend", "bend"],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_what_comes_of_it_is_the_same_but_for_the_differences(name, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs = outcome(CORNERS[name], tf.train, tmp_path / "theirs")
    here = outcome(CORNERS[name], ours, tmp_path / "ours")
    assert (theirs, here) == DIFFERENT.get(name, (theirs, theirs))
