"""``EvaluationHook`` on a ``tf.Graph``: what it draws from, and what it leaves to the training."""

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1


@pytest.fixture
def ticks(graph):
    """A step of the training, which draws from a dataset of its own."""
    element = tf.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    with tf.control_dependencies([element]):
        return tf.assign_add(tf.train.get_or_create_global_step(), 1)


def evaluate(hook, op, steps, session=train.MonitoredSession):
    with session(hooks=[hook]) as running:
        for _ in range(steps):
            running.run(op)


IN_EITHER = pytest.mark.parametrize("session", [train.MonitoredSession, tf.train.MonitoredSession])


@IN_EITHER
def test_metric_that_draws_nothing_is_one_run(model, session):
    hook = train.EvaluationHook({"loss": model.loss}, every_n_steps=2)
    evaluate(hook, model.train_op, 4, session)
    assert hook.last_metrics == {"loss": 8.0}


@IN_EITHER
def test_dataset_begins_anew_in_each_evaluation(ticks, session, tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 6.0])
    value = tf.data.make_initializable_iterator(dataset).get_next()
    hook = train.EvaluationHook({"value": value}, every_n_steps=2, output_dir=tmp_path)
    evaluate(hook, ticks, 5, session)
    assert train.read_eval_metrics(tmp_path) == {2: {"value": 3.0}, 4: {"value": 3.0}}


def test_queue_ends_an_evaluation(ticks):
    queue = tf.train.range_input_producer(3, num_epochs=1, shuffle=False)
    hook = train.EvaluationHook({"value": queue.dequeue()}, every_n_steps=2)
    evaluate(hook, ticks, 3)
    assert hook.last_metrics == {"value": 1.0}


@IN_EITHER
def test_a_pair_of_tf_metrics_counts_each_example_once(ticks, session, tmp_path):
    numbers = tf.data.Dataset.from_tensor_slices([0.0] * 32 + [1.0]).batch(32)
    x = tf.data.make_initializable_iterator(numbers).get_next()
    seen = tf.get_local_variable("seen", initializer=0)  # another local variable
    with tf.control_dependencies([tf.assign_add(seen, 1)]):
        mean = tf.metrics.mean(x)
    metrics = {"mean": mean, "recall": tf.metrics.recall(x > 0.5, x > 2), "of": tf.reduce_mean(x)}
    test = train.EvaluationHook(metrics, every_n_steps=2, output_dir=tmp_path)
    stop = train.stop_if_no_increase_hook(test.metric("mean"), patience=1)
    runs = []

    class Reader(train.SessionRunHook):
        def end(self, session):
            runs.append(session.run(seen))

    with session(hooks=[Reader(), test, stop]) as running:
        while not running.should_stop():
            running.run(ticks)
    found = {"mean": pytest.approx(1 / 33), "of": 0.5, "recall": 0.0}
    assert test.metrics_by_step() == dict.fromkeys((2, 4, 6), found)
    assert list(test.last_metrics) == ["mean", "of", "recall"]
    assert train.read_eval_metrics(tmp_path)[6] == pytest.approx(test.last_metrics)
    assert runs[0] >= 9  # two batches and the value, three times: nothing has reset it


@pytest.mark.parametrize("of", [lambda x: 5, lambda x: (x,), lambda x: (x, 5), lambda x: [x, x, x]])
def test_what_is_no_metric_is_named(model, of):
    hook = train.EvaluationHook({"good": model.loss, "bad": of(model.loss)}, every_n_steps=1)
    with pytest.raises(TypeError, match="the metric 'bad' must be a tensor, its name, or on"):
        evaluate(hook, model.train_op, 1)


def test_data_that_the_user_begins(ticks):
    """Streaming metrics, and an iterator that a placeholder feeds: hooks of the evaluation."""
    data = tf.placeholder(tf.float32, [None])
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(data))
    mean, update = tf.metrics.mean(iterator.get_next())
    begin = [tf.local_variables_initializer(), iterator.initializer]
    means = []

    class Streaming(train.SessionRunHook):
        def after_create_session(self, session, coord):
            session.run(begin, {data: [1.0, 2.0, 6.0]})

        def end(self, session):
            means.append(session.run(mean))

    hook = train.EvaluationHook({"update": update}, every_n_steps=2, hooks=[Streaming()])
    evaluate(hook, ticks, 4)
    assert means == [3.0, 3.0]
    assert hook.last_metrics == pytest.approx({"update": (1 + 1.5 + 3) / 3})


@pytest.mark.parametrize("make", ["make_one_shot_iterator", "make_initializable_iterator"])
def test_dataset_of_the_training_is_not_taken_from(graph, make):
    iterator = getattr(tf.data, make)(tf.data.Dataset.range(10))
    element = iterator.get_next()
    with tf.control_dependencies([element]):
        train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    if make == "make_initializable_iterator":
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    hook = train.EvaluationHook({"element": element}, every_n_steps=2)
    with pytest.raises(ValueError, match="input '.*Iterator"):
        evaluate(hook, train_op, 2)


def test_iterator_that_feeds_switch_may_serve_both(graph):
    handle = tf.placeholder(tf.string, [])
    kinds = [tf.data.Dataset.range(100), tf.data.Dataset.range(1000, 1003)]
    iterators = [tf.data.make_initializable_iterator(kind) for kind in kinds]
    either = tf.data.Iterator.from_string_handle(handle, tf.int64, [])
    element = either.get_next()
    with tf.control_dependencies([element]):
        train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    string_handles = [iterator.string_handle() for iterator in iterators]
    for iterator in iterators:
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    handles = []
    hook = train.EvaluationHook(
        {"element": element}, lambda step: [{handle: handles[1]}] * 3, every_n_steps=2
    )
    with train.MonitoredSession(hooks=[hook]) as running:
        handles += running.run(string_handles, hooks=False)
        for _ in range(2):
            running.run(train_op, {handle: handles[0]})
        assert hook.last_metrics == {"element": 1001.0}
        assert running.run([element, train_op], {handle: handles[0]})[0] == 2
