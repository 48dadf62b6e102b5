"""The jax engine: one executable a plan, donated buffers, and values that outlive them."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def engine():
    return "jax"


@pytest.fixture
def compiled():
    """The compilations that XLA has made since, one element each."""
    events = []

    def listen(event, duration, **kwargs):
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return events


def ones(*shape):
    return np.ones(shape, np.float32)


# values outlive the buffers


def doubled(tree):
    return {"w": tree["w"] * 2, "frozen": tree["frozen"]}


def trained(tree):
    return {"w": tree["w"] + 1, "frozen": tree["frozen"]}


FETCHES = {
    "variable": (lambda v, new: v["w"], [1, 2, 3]),
    "whole variable": (lambda v, new: rh.call(lambda t: t, v)["w"], [1, 2, 3]),
    "assigned value": (lambda v, new: new["w"], [2, 3, 4]),
    "leaf that is never changed": (lambda v, new: v["frozen"], [1, 1, 1]),
    "leaf passed through": (lambda v, new: rh.call(doubled, v)["frozen"], [1, 1, 1]),
    "leaf that a nested jit passes through": (
        lambda v, new: rh.call(jax.jit(doubled), v)["frozen"],
        [1, 1, 1],
    ),
    "computed value": (lambda v, new: rh.call(doubled, v)["w"], [2, 4, 6]),
}


@pytest.mark.parametrize("what", FETCHES)
def test_value_read_after_later_runs_donated_its_buffer_is_still_there(what, graph):
    build, expected = FETCHES[what]
    v = rh.Variable({"w": ones(1000), "frozen": ones(1000)}, name="v")
    new = v.assign(rh.call(trained, v))
    tensor = build(v, new)
    with rh.Session(graph) as sess:
        fetched = [sess.run([tensor, new])[0] for _ in expected]
        sess.run(new)
    np.testing.assert_array_equal(np.stack(fetched), np.outer(expected, ones(1000)))


def test_variable_fetched_alone_outlives_the_training_that_follows(graph):
    v = rh.Variable(ones(1000), name="v")
    train = v.assign_add(ones(1000))
    with rh.Session(graph) as sess:
        before = sess.run(v)
        for _ in range(3):
            sess.run(train)
        np.testing.assert_array_equal(before, ones(1000))
        np.testing.assert_array_equal(sess.run(v), 4 * ones(1000))


def test_array_of_numpy_that_a_variable_begins_with_stays_the_callers(graph):
    memory = np.ones(1016, np.float32)
    start = -(memory.ctypes.data // 4) % 16  # memory at such an address JAX would share
    given = memory[start : start + 1000]
    v = rh.Variable(given, name="v")
    with rh.Session(graph) as sess:
        sess.run(v)
        given[:] = 9
        np.testing.assert_array_equal(sess.run(v), ones(1000))


def test_two_variables_may_hold_what_was_one_array(graph):
    shared = jnp.ones(1000)
    a, b = rh.Variable(shared, name="a"), rh.Variable(shared, name="b")
    step = rh.group(a.assign_add(ones(1000)), b.assign(a))
    with rh.Session(graph) as sess:
        for _ in range(3):
            sess.run(step)
        np.testing.assert_array_equal(sess.run(a), 4 * ones(1000))
        np.testing.assert_array_equal(sess.run(b), 3 * ones(1000))
    np.testing.assert_array_equal(shared, ones(1000))


def test_one_value_assigned_to_two_variables(graph):
    a, b = rh.Variable(ones(1000), name="a"), rh.Variable(ones(1000), name="b")
    both = rh.call(lambda x, y: x + y, a, b)
    step = rh.group(a.assign(both), b.assign(both))
    with rh.Session(graph) as sess:
        for _ in range(3):
            sess.run(step)
        np.testing.assert_array_equal(sess.run(b), 8 * ones(1000))


def test_fed_device_array_stays_the_callers(graph):
    x = rh.placeholder("x")
    v = rh.Variable(ones(1000), name="v")
    keep = v.assign(x)
    fed = jnp.full(1000, 5.0)
    with rh.Session(graph) as sess:
        sess.run(keep, {x: fed})
        for _ in range(2):
            sess.run(v.assign_add(ones(1000)))
    np.testing.assert_array_equal(fed, 5 * ones(1000))


# what stays on the device


def test_steady_loop_moves_nothing_from_host_to_device_but_the_feeds(graph):
    v = rh.Variable(ones(3), name="v")
    x = rh.placeholder("x")
    loss = rh.call(lambda v, x: (v * x).sum(), v, x)
    train = rh.group(v.assign_add(x), rh.train.create_global_step().assign_add(1))
    fed = jnp.ones(3)
    with rh.Session(graph) as sess:
        sess.run([loss, train], {x: fed})
        with jax.transfer_guard("disallow"):
            for _ in range(3):
                sess.run([loss, train], {x: fed})


def test_values_given_to_a_variable_on_a_device_are_moved_explicitly(graph):
    v = rh.Variable(jax.device_put(jnp.ones(3), jax.devices()[0]), name="v")
    with rh.Session(graph) as sess:
        before = sess.snapshot()
        with jax.transfer_guard("disallow"):
            sess.assign({"v": np.zeros(3, np.float32)})
            sess.load(before, only=["v"])
        np.testing.assert_array_equal(sess.run(v), ones(3))


def test_host_values_that_no_device_code_takes_never_meet_the_device(graph):
    label = rh.inputs([{"name": "cat", "id": 2**40}])
    with rh.Session(graph) as sess:
        assert sess.run(label) == {"name": "cat", "id": 2**40}


# executables


def test_second_session_of_a_graph_uses_the_executables_of_the_first(graph, compiled):
    v = rh.Variable(ones(3), name="v")
    train = v.assign(rh.call(lambda t: jnp.sin(t) + 1, v))
    with rh.Session(graph) as sess:
        sess.run(train)
        sess.run(train)
    compiled.clear()
    with rh.Session(graph) as sess:
        sess.run(train)
    assert compiled == []


# random keys


@pytest.mark.parametrize("make_key", [jax.random.key, jax.random.PRNGKey], ids=["typed", "raw"])
def test_random_key_is_split_saved_and_restored(make_key, graph):
    key = rh.Variable(make_key(0), name="key")
    parts = rh.call(jax.random.split, key)
    draw = rh.call(lambda k: jax.random.normal(k, (3,)), parts[1])
    step = [draw, key.assign(parts[0])]
    with rh.Session(graph) as sess:
        sess.run(step)
        snapshot = sess.snapshot()
        expected = [np.asarray(sess.run(step)[0]) for _ in range(3)]
    with rh.Session(graph) as resumed:
        resumed.load(snapshot)
        actual = [np.asarray(resumed.run(step)[0]) for _ in range(3)]
    np.testing.assert_array_equal(actual, expected)


# constants


def test_array_given_to_a_call_is_traced_as_an_argument_of_jit_is(graph):
    table = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    row = rh.placeholder("row")
    picked = rh.call(lambda parts, i: parts["table"][i], {"table": table}, row)
    with rh.Session(graph) as sess:
        np.testing.assert_array_equal(sess.run(picked, {row: 2}), table[2])


def test_array_given_to_a_call_is_not_lost_to_a_variable_that_gets_it(graph):
    given = jnp.arange(3.0)
    v = rh.Variable(np.zeros(3, np.float32), name="v")
    same = v.assign(rh.call(lambda x: x, given))
    more = v.assign_add(1.0)
    with rh.Session(graph) as sess:
        for _ in range(3):  # each run donates what the variable held
            sess.run(same)
            sess.run(more)
        np.testing.assert_array_equal(sess.run(v), [1, 2, 3])
    np.testing.assert_array_equal(given, [0, 1, 2])


def test_equal_computations_are_compiled_once_whatever_their_shape(graph, compiled):
    v = rh.Variable(ones(3), name="v")
    a, b = rh.call(lambda x: x + 1, v), rh.call(lambda x: x * 2, v)
    with rh.Session(graph) as sess:
        sess.run([a, b])
        compiled.clear()
        for fetches in ((a, b), [b, a], {"x": a, "y": [b]}, ["lambda:0", b]):
            sess.run(fetches)
    assert not compiled


def test_array_given_to_a_call_is_on_the_device_once(graph):
    table = np.zeros((100, 100), np.float32)
    picked = rh.call(lambda t, i: t[i], table, 0)
    before = sum(array.shape == table.shape for array in jax.live_arrays())
    with rh.Session(graph) as sess:
        for fetches in (picked, [picked, picked + 1], [picked, picked + 2]):
            sess.run(fetches)
        assert sum(array.shape == table.shape for array in jax.live_arrays()) == before


def test_counter_too_large_for_the_device_is_an_error_and_does_not_wrap(graph):
    tokens = rh.train.create_global_step()
    seen = rh.call(lambda n: n, tokens.assign_add(2**31))
    with rh.Session(graph) as sess:
        with pytest.raises(OverflowError):
            sess.run(seen)
        assert sess.global_step == 0


@pytest.mark.parametrize("count", [3, 5_000])
def test_histogram_of_few_and_of_many_values_is_that_of_numpy(count):
    encoded = []
    for engine in ("python", "jax"):
        with rh.Graph(engine).as_default() as graph, rh.Session(graph) as sess:
            weights = rh.Variable(np.float32(np.arange(count) % 5 - 2), name="weights")
            summary = sess.run(rh.summary.histogram("weights", weights))
            encoded.append(summary.SerializeToString())
    assert encoded[0] == encoded[1]


def test_sessions_in_two_threads_trace_one_step_at_once_for_other_shapes():
    """Each has its own outputs; small and large ones come in another order from the device."""
    names = [f"output_{i}" for i in range(20)]
    wrong = []

    def compare(graph, size):
        with rh.Session(graph) as session:
            *outputs, _ = session.run([*names, "train_op"], {"x": np.ones(size, np.float32)})
        expected = [(size,) if i % 2 else (7,) for i in range(len(names))]
        if [it.shape for it in outputs] != expected:
            wrong.append(size)

    for _ in range(3):
        meet = threading.Barrier(2)

        def train_step(w, x, meet=meet):
            if isinstance(x, jax.core.Tracer):
                meet.wait(60)
            return w + 1, {
                name: x if i % 2 else x.sum() * jnp.ones(7) for i, name in enumerate(names)
            }

        graph = rh.jax.graph(train_step, w=jnp.zeros(2), x=lambda: rh.placeholder())
        threads = [threading.Thread(target=compare, args=(graph, size)) for size in (3, 3000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
