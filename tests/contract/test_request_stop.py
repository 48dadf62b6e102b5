"""A hook asks to stop, and may say why."""

import pytest

import runhooks as rh


class Stop(rh.SessionRunHook):
    def __init__(self, method, *reason):
        self.method, self.reason = method, reason

    def before_run(self, run_context):
        if self.method == "before_run":
            run_context.request_stop(*self.reason)

    def after_run(self, run_context, run_values):
        if self.method == "after_run":
            run_context.request_stop(*self.reason)


@pytest.mark.parametrize("method", ["before_run", "after_run"])
@pytest.mark.parametrize(
    ("reason", "shown"), [((), "Stop"), ((None,), "Stop"), (("plateau",), "Stop (plateau)")]
)
def test_the_reason_is_shown_with_the_name_of_the_hook(model, method, reason, shown):
    with rh.MonitoredSession(hooks=[Stop(method, *reason)]) as sess:
        sess.run(model.train_op)
        assert sess.should_stop()
        assert sess.stop_reason == shown
        with pytest.raises(RuntimeError, match=shown.replace("(", r"\(").replace(")", r"\)")):
            sess.run(model.train_op)
    assert sess.stop_reason == shown


def test_the_first_hook_that_asks_is_shown(model):
    class Other(Stop):
        pass

    hooks = [Stop("after_run"), Other("after_run", "too late")]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(model.train_op)
    assert sess.stop_reason == "Stop"


def test_a_reason_is_a_text(model):
    with rh.MonitoredSession(hooks=[Stop("after_run", 5)]) as sess:
        with pytest.raises(TypeError, match="reason"):
            sess.run(model.train_op)
