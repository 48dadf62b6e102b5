"""Subclasses of TensorFlow's hooks, as programs have them, extend ours."""

import pytest

import runhooks as rh
from runhooks.testing import read_events


def run(model, *hooks, steps, **arguments):
    with rh.MonitoredTrainingSession(hooks=list(hooks), **arguments) as sess:
        for _ in range(steps):
            sess.run(model.train_op)


# --- StepCounterHook


class ExamplesPerSecond(rh.StepCounterHook):
    """As the estimator's examples have it."""

    def __init__(self, batch_size, **arguments):
        super().__init__(**arguments)
        self.batch_size, self.calls = batch_size, []

    def _log_and_record(self, elapsed_steps, elapsed_time, global_step):
        super()._log_and_record(elapsed_steps, elapsed_time, global_step)
        self.calls.append((elapsed_steps, elapsed_time, global_step))
        rate = self.batch_size * elapsed_steps / elapsed_time
        value = rh.summary.scalar_value(self._summary_tag.replace("step", "examples"), rate)
        self._summary_writer.add_summary(rh.summary.Summary([value]), global_step)


def test_log_and_record_is_called_with_tensorflows_arguments(model, fake_clock, tmp_path):
    hook = ExamplesPerSecond(32, every_n_steps=2, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(5):
            fake_clock.advance(0.5)
            sess.run(model.train_op)
    assert hook.calls == [(2, 1.0, 3), (2, 1.0, 5)]
    assert {(s.tag, s.step, s.value) for s in read_events(tmp_path)} == {
        *(("global_step/sec", 3, 2.0), ("global_examples/sec", 3, 64.0)),
        *(("global_step/sec", 5, 2.0), ("global_examples/sec", 5, 64.0)),
    }


def test_log_and_record_is_called_at_the_end_of_a_trigger(model, fake_clock, tmp_path):
    hook = ExamplesPerSecond(1, output_dir=tmp_path, trigger=rh.Trigger(at_end=True))
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            fake_clock.advance(1)
            sess.run(model.train_op)
    assert hook.calls == [(2, 2.0, 3)]


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


def test_log_tensors_is_called_with_the_values(model):
    class Log(rh.LoggingTensorHook):
        got = ()

        def _log_tensors(self, tensor_values):
            self.got += (tensor_values,)

    hook = Log({"loss": model.loss}, every_n_iter=2, at_end=True)
    run(model, hook, steps=3)
    assert hook.got == ({"loss": 0.0}, {"loss": 4.0}, {"loss": 6.0})


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


def test_log_tensors_may_add_to_the_line(model, caplog):
    class Log(rh.LoggingTensorHook):
        def _log_tensors(self, tensor_values):
            super()._log_tensors(dict.fromkeys(tensor_values, 7.0))

    caplog.set_level("INFO", "runhooks")
    run(model, Log([model.loss], every_n_iter=1), steps=1)
    assert "loss:0 = 7.0" in caplog.messages


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


# --- CheckpointSaverHook


class AtTheEnd(rh.CheckpointSaverHook):
    """Saves at the end alone."""

    def after_create_session(self, session, coord):
        pass

    def before_run(self, run_context):
        pass

    def after_run(self, run_context, run_values):
        pass


@pytest.mark.parametrize("given", ["nothing", "saver", "scaffold"])
def test_a_checkpoint_hook_may_save_at_the_end_alone(model, tmp_path, given):
    arguments = {
        "nothing": {},
        "saver": {"saver": rh.Saver()},
        "scaffold": {"scaffold": rh.Scaffold(saver=rh.Saver())},
    }[given]
    run(model, AtTheEnd(tmp_path, save_steps=1, **arguments), steps=3)
    assert [path.name for path in sorted(tmp_path.glob("model.ckpt-*"))] == ["model.ckpt-3"]
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3")


def test_a_checkpoint_hook_with_the_after_run_of_tensorflow(model, tmp_path):
    class Saves(rh.CheckpointSaverHook):
        def after_run(self, run_context, run_values):
            stale = run_values.results
            if self._timer.should_trigger_for_step(stale + self._steps_per_run):
                step = int(run_context.session.run(self._global_step_tensor))
                if self._timer.should_trigger_for_step(step):
                    self._timer.update_last_triggered_step(step)
                    if self._save(run_context.session, step):
                        run_context.request_stop()

    run(model, Saves(tmp_path, save_steps=2, saver=rh.Saver(max_to_keep=9)), steps=5)
    names = [path.name for path in sorted(tmp_path.glob("model.ckpt-*"))]
    assert names == [f"model.ckpt-{step}" for step in (0, 2, 4, 5)]


def test_save_and_get_saver_may_be_overridden(model, tmp_path):
    class Saves(rh.CheckpointSaverHook):
        saved = ()

        def _get_saver(self):
            return rh.Saver(max_to_keep=1)

        def _save(self, session, step):
            self.saved += (step,)
            return super()._save(session, step)

    hook = Saves(tmp_path, save_steps=2)
    run(model, hook, steps=3)
    assert hook.saved == (0, 2, 3)


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


def test_a_stop_hook_with_the_after_run_of_tensorflow(model):
    class Stop(rh.StopAtStepHook):
        def after_run(self, run_context, run_values):
            if run_values.results + 1 >= self._last_step:
                step = run_context.session.run(self._global_step_tensor)
                if step >= self._last_step:
                    run_context.request_stop()

    with rh.MonitoredSession(hooks=[Stop(num_steps=3)]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
    assert sess.global_step == 3


def test_a_method_that_nobody_would_call_is_refused():
    class Saves(rh.ProfilerHook):
        def _save(self, step, save_path, step_stats):
            pass

    with pytest.raises(TypeError, match=r"Saves overrides _save"):
        Saves(save_steps=1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: rh.ProfilerHook(save_steps=1), "_file_writer"),
        (lambda: rh.SummarySaverHook(save_steps=1, summary_op=[]), "_next_step"),
    ],
)
def test_an_attribute_that_does_not_exist_here_says_so(make, name):
    with pytest.raises(AttributeError, match=rf"{name}'.*TensorFlow"):
        getattr(make(), name)


def test_any_other_attribute_is_unknown_as_usual():
    with pytest.raises(AttributeError, match="'StopAtStepHook' has no attribute 'nonsense'$"):
        getattr(rh.StopAtStepHook(1), "nonsense")  # noqa: B009
