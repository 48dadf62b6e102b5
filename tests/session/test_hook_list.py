"""What hooks keep in checkpoints, matched by name, and errors that name the hook they are of."""

import logging
import threading

import pytest

import runhooks as rh


class Counter(rh.SessionRunHook):
    """Counts runs."""

    def __init__(self, name=None):
        self.hook_name = name
        self.count = 0

    def after_run(self, run_context, run_values):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Loader:
    """An input that knows where it is."""

    def __init__(self):
        self.index = 0

    def __iter__(self):
        while True:
            self.index += 1
            yield self.index

    def state_dict(self):
        return {"index": self.index}

    def load_state_dict(self, state):
        self.index = state["index"]


@pytest.fixture
def resume(tmp_path, caplog):
    """Runs 3 steps of a program in one directory; returns the warnings of that."""

    def resume(*hooks, input_name="train", **kwargs):
        caplog.clear()
        with rh.Graph().as_default():
            step = rh.train.get_or_create_global_step()
            train_op = rh.group(rh.inputs(Loader(), name=input_name), step.assign_add(1))
            with (
                caplog.at_level(logging.WARNING, "runhooks"),
                rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks, **kwargs) as sess,
            ):
                for _ in range(3):
                    sess.run(train_op)
        return caplog.messages

    return resume


def test_new_name_of_a_hook_is_told_with_the_remedy(resume):
    resume(Counter("one"), Counter("two"))
    (warning,) = resume(Counter("one"), Counter("three"))
    assert "(two)" in warning
    assert "for three" in warning
    assert "hook_name" in warning


def test_new_name_of_an_input_and_a_hook_that_is_gone_are_told_in_one_warning(resume):
    resume(Counter())
    (warning,) = resume(input_name="training")
    assert "Counter, inputs/train" in warning


def test_hook_without_a_state_may_come_and_go(resume):
    resume(rh.StopAtStepHook(last_step=3))
    assert resume(rh.LoggingTensorHook(["global_step:0"], every_n_iter=1)) == []


def test_worker_and_a_program_that_only_looks_are_not_warned(resume, tmp_path, caplog):
    resume(Counter())
    assert resume(is_chief=False) == []
    with rh.Graph().as_default(), caplog.at_level(logging.WARNING, "runhooks"):
        rh.train.get_or_create_global_step()
        with rh.SingularMonitoredSession(checkpoint_dir=tmp_path):
            assert caplog.messages == []


class Steps(rh.SessionRunHook):
    """Keeps how often it has seen each step."""

    def __init__(self):
        self.seen = {}

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        self.seen[step] = self.seen.get(step, 0) + 1

    def state_dict(self):
        return dict(self.seen)

    def load_state_dict(self, state):
        self.seen = dict(state)


class Last(Steps):
    """Keeps the steps by a name, and has nothing to keep before the first."""

    def state_dict(self):
        return {"seen": dict(self.seen)} if self.seen else {}

    def load_state_dict(self, state):
        self.seen = dict(state["seen"])


@pytest.mark.parametrize("is_saved", [True, False])
def test_lost_steps_are_gone_from_a_state_that_was_empty(is_saved, model, tmp_path, caplog):
    hook, loop = Steps(), {}
    hooks = [hook, rh.SavedStateHook(loop=loop), rh.LoggingTensorHook([model.loss], every_n_iter=2)]
    folder = tmp_path if is_saved else None
    with caplog.at_level(logging.WARNING, "runhooks"):
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as sess:
            for _ in range(3):
                loop[sess.global_step] = True
                sess.run(model.train_op)
            model.faults.fail(rh.errors.AbortedError("lost"))
            for _ in range(3):
                sess.run(model.train_op)
        assert sess.recoveries == 1
    assert hook.seen == {1: 1, 2: 1, 3: 1}
    assert loop == {}
    (warning,) = caplog.messages
    assert warning.startswith("session lost at step 3")


def test_a_state_that_cannot_be_empty_is_kept_and_told(model, tmp_path, caplog):
    hook = Last()
    with caplog.at_level(logging.WARNING, "runhooks"):
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path / "lost", hooks=[hook]) as sess:
            sess.run(model.train_op)
            model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
    assert hook.seen == {1: 2}
    assert any(it.startswith("Last keeps its present state") for it in caplog.messages)


def test_a_state_that_was_empty_is_not_loaded_where_it_still_is(resume):
    class Idle(Last):
        def after_run(self, run_context, run_values):
            pass

    resume(Idle())
    assert resume(Idle()) == []


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 1), (2, 3)])
def test_other_numbers_of_hooks_than_in_the_checkpoint_are_told(before, now, resume):
    resume(*[Steps() for _ in range(before)])
    warnings = resume(*[Steps() for _ in range(now)])
    there, here = (", ".join(["Steps", "Steps_1", "Steps_2"][:it]) for it in (before, now))
    assert (
        f"the checkpoint has the states of {there}, and the hooks here are {here}." in warnings[0]
    )
    assert "hook_name" in warnings[0]


def test_numbered_hooks_that_never_had_a_state_to_keep_are_counted_too(resume):
    class Idle(Steps):
        def after_run(self, run_context, run_values):
            pass

    resume(Idle(), Idle())
    (warning,) = resume(Idle())
    assert "the states of Idle, Idle_1, and the hooks here are Idle." in warning


def test_a_new_hook_with_a_name_of_its_own_leaves_the_numbers_of_others(resume):
    resume(Steps(), Steps())
    new, first, second = Steps(), Steps(), Steps()
    new.hook_name, second.hook_name = "new", "Steps_1"
    assert resume(new, second, first) == []
    assert list(new.seen) == [4, 5, 6]
    assert list(first.seen) == list(second.seen) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("state", [None, ["a"], 5])
def test_state_that_is_no_dict_is_told_of_the_hook(state, model, tmp_path):
    class Wrong(Counter):
        def state_dict(self):
            return state

    with pytest.raises(TypeError, match="state_dict") as caught:
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[Wrong()])
    assert "in state_dict of the hook Wrong" in caught.value.__notes__


def test_part_without_a_good_state_is_named(model, tmp_path):
    loader = Loader()
    loader.state_dict = lambda: 5
    with pytest.raises(TypeError, match="got 5") as caught:
        rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=[rh.SavedStateHook(loader=loader)]
        )
    assert "in state_dict of the hook loader of SavedStateHook" in caught.value.__notes__


def test_watched_and_next_due_name_their_hook(model):
    class Watching(rh.SessionRunHook):
        def watch(self, step, value):
            pass

        def before_run(self, run_context):
            return None

        def watched(self):
            raise ValueError("no such loss")

    class Due5(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            pass

        def next_due(self):
            return 5

    with pytest.raises(ValueError, match="no such loss") as caught:
        rh.MonitoredSession(hooks=[Watching()])
    assert "in watched of the hook Watching" in caught.value.__notes__
    with pytest.raises(TypeError, match="Due.*5") as caught:
        rh.MonitoredSession(hooks=[Due5()])
    assert "in next_due of the hook Due5" in caught.value.__notes__


def test_hook_that_watches_needs_a_before_run(model):
    class Watching(rh.SessionRunHook):
        def watch(self, step, value):
            pass

        def watched(self):
            return model.loss

    with pytest.raises(TypeError, match="before_run must ask for the tensor"):
        rh.MonitoredSession(hooks=[Watching()])


# what a hook asks of a run


def run_with(hook, model, feed_dict=None):
    with pytest.raises((TypeError, ValueError)) as caught:
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run(model.train_op, feed_dict)
    return caught.value, getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize(
    ("feeds", "name"), [(3, "got 3"), ({"nosuch:0": 3}, "nosuch")], ids=["number", "unknown"]
)
def test_bad_feeds_of_a_hook_name_it(model, feeds, name):
    error, notes = run_with(rh.FeedFnHook(lambda: feeds), model)
    assert name in str(error)
    assert any("FeedFnHook" in note for note in notes)


def test_hook_that_needs_a_feed_is_named(model):
    x = rh.placeholder("x")
    error, notes = run_with(rh.LoggingTensorHook([x], every_n_iter=1), model)
    assert "'x:0'" in str(error)
    assert any("LoggingTensorHook" in note for note in notes)


def test_mistake_of_the_caller_is_not_put_on_a_hook(model):
    x = rh.placeholder("x")
    hook = rh.LoggingTensorHook([x], every_n_iter=1)
    with pytest.raises(ValueError, match="'x:0'") as caught:
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run([model.train_op, x])
    assert getattr(caught.value, "__notes__", []) == []


# why it stops


def test_hook_that_stops_before_the_first_run_is_the_reason(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(num_steps=0)]) as sess:
        assert sess.should_stop()
        assert sess.stop_reason == "StopAtStepHook"


def test_thread_at_the_end_of_its_input_has_not_failed(caplog):
    coord = rh.train.Coordinator(clean_stop_exception_types=())
    caplog.set_level(logging.INFO, "runhooks")

    @coord.stop_on_exception()
    def end():
        raise rh.errors.OutOfRangeError("no more lines")

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert "end of its input: no more lines" in coord.stop_reason
    assert "failed" not in caplog.text
    coord.clear_stop()
    assert coord.stop_reason is None


def test_a_hook_that_joins_later_ends_before_those_that_come_last(model, tmp_path):
    order = []

    class Ends(rh.SessionRunHook):
        def __init__(self, name):
            self.name = name

        def after_run(self, run_context, run_values):
            pass

        def end(self, session):
            order.append(self.name)

    class EndsLast(Ends):
        last = True

    with rh.MonitoredSession(hooks=[EndsLast("last"), Ends("first")]) as sess:
        sess.run(model.train_op, hooks=[Ends("joined")])
    assert order == ["first", "joined", "last"]


def test_attributes_that_a_hook_sets_for_itself_do_not_move_it(model):
    called = []

    class Notes(rh.SessionRunHook):
        def __init__(self, name, **own):
            self.name = name
            vars(self).update(own)

        def watched(self):
            return [self.name]

        def after_run(self, run_context, run_values):
            called.append(self.name)

    hooks = [Notes("a", last=0.0), Notes("b", first=True), Notes("c")]
    with rh.MonitoredSession(hooks=hooks) as session:
        session.run(model.loss)
    assert called == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["saved_objects", "hook_secs"])
def test_an_attribute_that_runhooks_reads_is_named_in_the_error(model, name):
    hook = Counter()
    setattr(hook, name, [3])
    with pytest.raises(TypeError, match=f"{name} of the hook Counter.*give it another name"):
        rh.MonitoredSession(hooks=[hook])
