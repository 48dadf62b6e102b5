"""``inputs``: each run that needs it draws one element; its end is an OutOfRangeError."""

import numpy as np
import pytest

import runhooks as rh
from tests.graph.sources import train


@pytest.mark.every_engine
def test_each_run_draws_one_element_until_the_end(graph):
    number = rh.inputs([1, 2], name="numbers")
    for _ in range(2):  # a list starts anew in each session
        with rh.Session(graph) as sess:
            assert [sess.run(number) for _ in range(2)] == [1, 2]
            for _ in range(2):
                with pytest.raises(rh.errors.OutOfRangeError, match="numbers"):
                    sess.run(number)


@pytest.mark.every_engine
def test_element_is_drawn_once_a_run_however_many_need_it(graph):
    number, other = rh.inputs(iter(range(10))), rh.Variable(0.0)
    with rh.Session(graph) as sess:
        assert sess.run([number, number + 0, number * 2]) == [0, 0, 0]
        sess.run(other)
        assert sess.run([number, number * 2]) == [1, 2]


@pytest.mark.every_engine
def test_several_outputs_take_an_element_apart(graph):
    images, labels = rh.inputs([("i0", "l0"), ("i1", "l1")], num_outputs=2)
    with rh.Session(graph) as sess:
        assert sess.run([labels, images]) == ["l0", "i0"]
        assert sess.run({"image": images}) == {"image": "i1"}


def test_element_with_other_parts_than_said_is_an_error(graph):
    parts = rh.inputs([(1, 2, 3)], num_outputs=2, name="pairs")
    with rh.Session(graph) as sess, pytest.raises(ValueError, match=r"pairs.*2.*3"):
        sess.run(parts[0])


@pytest.mark.every_engine
def test_elements_reach_device_code(graph):
    batch = rh.inputs(iter([np.ones(3, np.float32), np.zeros(3, np.float32)]))
    total = rh.call(lambda x: x.sum(), batch)
    with rh.Session(graph) as sess:
        assert [sess.run(total) for _ in range(2)] == [3, 0]


def test_callable_is_told_the_global_step_at_which_the_session_starts(graph):
    def batches(step):
        while True:
            yield step
            step += 1

    global_step = rh.train.create_global_step()
    batch = rh.inputs(batches)
    train_op = rh.group(batch, global_step.assign_add(1))
    with rh.Session(graph) as sess:
        for _ in range(3):
            sess.run(train_op)
        snapshot = sess.snapshot()
    with rh.Session(graph) as resumed:
        resumed.load(snapshot)
        assert resumed.run([batch, train_op]) == [3, None]


def test_error_of_the_source_comes_through_with_the_name_of_the_input(graph):
    def broken():
        yield 1
        raise OSError("the disk is gone")

    number = rh.inputs(broken(), name="numbers")
    with rh.Session(graph) as sess:
        sess.run(number)
        with pytest.raises(OSError, match="the disk is gone") as caught:
            sess.run(number)
    assert any("numbers" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("source", [5, None, object()], ids=["5", "None", "object"])
def test_source_that_is_neither_iterable_nor_callable_is_refused(source, graph):
    with pytest.raises(TypeError, match="source"):
        rh.inputs(source)


# Draws that a resume cannot make again


def warnings(caplog):
    return [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]


def test_input_by_the_step_that_runs_without_a_step_draw_from_is_told_once(graph, caplog):
    batch = rh.inputs(lambda step: iter(range(step, 100)), name="batch")
    train_op = rh.group(batch, rh.train.create_global_step().assign_add(1))
    with rh.Session() as sess:
        sess.run(train_op)
        sess.run([batch, train_op])
        assert warnings(caplog) == []
        sess.run(batch)
        sess.run([batch, batch])
    (warning,) = warnings(caplog)
    assert "'batch' goes by the global step" in warning
    assert "EvaluationHook" in warning


def test_inputs_of_one_kind_of_run_are_no_matter_for_a_warning(graph, caplog):
    train, test = rh.inputs(lambda step: iter(range(9))), rh.inputs(lambda step: iter(range(9)))
    listed = rh.inputs(list(range(9)))
    train_op = rh.group(train, listed, rh.train.create_global_step().assign_add(1))
    with rh.Session() as sess:
        for fetches in (train_op, test, listed, train_op):
            sess.run(fetches)
    assert warnings(caplog) == []


class Unsized:
    """Iterable as often as one likes, without a length or a state."""

    def __iter__(self):
        return iter(range(1, 7))


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, 2, 3, 4, 5, 6],
        lambda: range(1, 7),
        Unsized,
        lambda: lambda step: range(1 + step, 7),
    ],
    ids=["list", "range", "iterable", "by step"],
)
def test_resumed_process_goes_on_after_the_elements_it_has_drawn(make, tmp_path, caplog):
    drawn = [train(make(), last=last, checkpoint_dir=tmp_path) for last in (2, 3, 6)]
    assert drawn == [[1, 2], [3], [4, 5, 6]]
    assert warnings(caplog) == []


def test_shorter_list_is_at_its_end_when_it_has_fewer_elements_than_were_drawn(tmp_path):
    train([1, 2, 3], checkpoint_dir=tmp_path)
    assert train([1, 2], checkpoint_dir=tmp_path) == []


def test_generator_of_a_new_process_is_told_that_it_starts_over(tmp_path, caplog):
    for last in (2, 4):
        assert train(iter([1, 2, 3]), last=last, checkpoint_dir=tmp_path) == [1, 2]
    (warning,) = warnings(caplog)
    assert "'batch' starts over" in warning
    assert "2 were drawn until step 2" in warning


def test_iterator_that_goes_on_in_the_same_process_is_where_it_was(graph, tmp_path, caplog):
    batch = rh.inputs(iter([1, 2, 3, 4]), name="batch")
    train_op = rh.group(batch, rh.train.create_global_step().assign_add(1))
    drawn = []
    for _ in range(2):
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
            drawn += [sess.run([batch, train_op])[0] for _ in range(2)]
    assert drawn == [1, 2, 3, 4]
    assert warnings(caplog) == []


@pytest.mark.parametrize("make", [list, iter], ids=["list", "iterator"])
def test_run_that_has_drawn_everything_is_told_that_it_is_at_its_end(make, tmp_path, caplog):
    assert train(make([1, 2]), checkpoint_dir=tmp_path) == [1, 2]
    assert warnings(caplog) == []
    assert train(make([1, 2]), checkpoint_dir=tmp_path) == []
    (warning,) = warnings(caplog)
    assert "'batch' is at its end" in warning
