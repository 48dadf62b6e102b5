import logging

import pytest

import runhooks as rh


def test_values_at_the_end(train, model):
    hook = rh.FinalOpsHook({"loss": model.loss, "steps": "global_step:0"})
    assert hook.final_ops_values is None
    train(hook, steps=3)
    assert hook.final_ops_values == {"loss": 6.0, "steps": 3}


def test_feeds(train, graph, model):
    x = rh.placeholder("x")
    hook = rh.FinalOpsHook([x * 2.0], final_ops_feed_dict={x: 4.0})
    train(hook, steps=1)
    assert hook.final_ops_values == [8.0]


def test_nothing_to_fetch(train, model):
    hook = rh.FinalOpsHook(None)
    assert train(hook, steps=1) == 1
    assert hook.final_ops_values is None


def test_a_failed_loop_has_no_values(model):
    hook = rh.FinalOpsHook(model.loss)
    with pytest.raises(ZeroDivisionError):
        with rh.MonitoredSession(hooks=[hook]):
            raise ZeroDivisionError
    assert hook.final_ops_values is None


def test_ops_that_draw_from_an_input_at_its_end(graph, caplog):
    hook = rh.FinalOpsHook(rh.inputs([], name="empty"))
    with rh.Session() as session, pytest.raises(rh.errors.OutOfRangeError, match="'empty'"):
        hook.end(session)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "final_ops of FinalOpsHook could not be computed" in record.message
    assert "let them depend on variables alone" in record.message
