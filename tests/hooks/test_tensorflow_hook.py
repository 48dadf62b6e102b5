"""Subclasses of TensorFlow's hooks, as programs have them, extend ours."""

import pytest

import runhooks as rh
from runhooks.testing import read_events


def run(model, *hooks, steps, **arguments):
    with rh.MonitoredTrainingSession(hooks=list(hooks), **arguments) as sess:
        for _ in range(steps):
            sess.run(model.train_op)


# --- StepCounterHook


def test_an_after_run_as_tensorflow_has_it_gets_the_step(model):
    class Counter(rh.StepCounterHook):
        seen = ()

        def after_run(self, run_context, run_values):
            stale = run_values.results
            if self._timer.should_trigger_for_step(stale + self._steps_per_run):
                step = run_context.session.run(self._global_step_tensor)
                self._timer.update_last_triggered_step(step)
                self.seen += ((int(stale), int(step)),)
            self._last_global_step = stale

    hook = Counter(every_n_steps=2)
    run(model, hook, steps=4)
    assert hook.seen == ((0, 1), (2, 3))


# --- LoggingTensorHook


@pytest.mark.parametrize(
    ("cadence", "logged"),
    [
        ({"every_n_secs": 2}, ((0.0, None), (4.0, 2.0), (8.0, 2.0))),
        ({"trigger": rh.Trigger(every_secs=2)}, ((4.0, None), (8.0, 2.0))),
    ],
)
def test_log_tensors_asks_the_timer_as_in_tensorflow(model, fake_clock, cadence, logged):
    class Log(rh.LoggingTensorHook):
        got = ()

        def _log_tensors(self, tensor_values):
            secs, _ = self._timer.update_last_triggered_step(self._iter_count)
            self.got += ((tensor_values["loss"], secs),)

    hook = Log({"loss": model.loss}, **cadence)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(6):
            sess.run(model.train_op)
            fake_clock.advance(1)
    assert hook.got == logged


def test_a_metric_hook_of_the_official_models(model):
    class LoggingMetricHook(rh.LoggingTensorHook):
        logged = ()

        def begin(self):
            super().begin()
            self.step_tensor = rh.train.get_global_step()
            if self.step_tensor not in self._current_tensors:
                self._current_tensors[self.step_tensor] = self.step_tensor

        def after_run(self, run_context, run_values):
            if self._should_trigger:
                self.log_metric(run_values.results)
            self._iter_count += 1

        def end(self, session):
            if self._log_at_end:
                self.log_metric(session.run(self._current_tensors))

        def log_metric(self, tensor_values):
            self._timer.update_last_triggered_step(self._iter_count)
            step = int(tensor_values[self.step_tensor])
            self.logged += tuple((step, tag, tensor_values[tag]) for tag in self._tag_order)

    hook = LoggingMetricHook({"loss": model.loss}, every_n_iter=2, at_end=True)
    run(model, hook, steps=4)
    assert hook.logged == ((0, "loss", 0.0), (2, "loss", 4.0), (4, "loss", 8.0))


# --- Others


def test_get_summary_op_is_asked(model, tmp_path):
    class Summaries(rh.SummarySaverHook):
        def _get_summary_op(self):
            return [other]

    loss = rh.summary.scalar("loss", model.loss)
    other = rh.summary.scalar("other", model.loss)
    run(model, Summaries(save_steps=2, output_dir=tmp_path, summary_op=loss), steps=3)
    assert {(s.tag, s.step) for s in read_events(tmp_path)} == {("other", 1), ("other", 3)}


def test_the_writer_of_a_hook_may_be_replaced(model, tmp_path):
    class Elsewhere(rh.SummarySaverHook):
        def begin(self):
            super().begin()
            self._summary_writer = rh.summary.FileWriterCache.get(tmp_path / "elsewhere")

    loss = rh.summary.scalar("loss", model.loss)
    run(model, Elsewhere(save_steps=1, output_dir=tmp_path, summary_op=loss), steps=1)
    assert read_events(tmp_path) == []
    assert [s.tag for s in read_events(tmp_path / "elsewhere")] == ["loss"]


def test_a_method_that_nobody_would_call_is_refused():
    class Saves(rh.ProfilerHook):
        def _save(self, step, save_path, step_stats):
            pass

    with pytest.raises(TypeError, match=r"Saves overrides _save"):
        Saves(save_steps=1)
