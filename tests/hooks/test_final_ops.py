import logging

import pytest

import runhooks as rh


@pytest.mark.every_engine
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
    (record,) = [it for it in caplog.records if "FinalOpsHook" in it.message]
    assert record.levelno == logging.WARNING
    assert "'empty'" in record.message


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(("losss:0",), "losss:0"), ((5,), "5"), (("loss:0", {"nosuch:0": 1}), "nosuch")],
    ids=["unknown", "number", "unknown feed"],
)
def test_mistake_is_told_when_the_session_is_made(model, arguments, name):
    with pytest.raises((TypeError, ValueError), match=name) as caught:
        rh.MonitoredSession(hooks=[rh.FinalOpsHook(*arguments)])
    assert any("FinalOpsHook" in note for note in caught.value.__notes__)


def test_feed_dict_must_be_one():
    with pytest.raises(TypeError, match="final_ops_feed_dict"):
        rh.FinalOpsHook("loss:0", 5)
