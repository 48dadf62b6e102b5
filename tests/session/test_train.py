"""``rh.train.train``: the loop in one line; and ``saver=`` of the session that it makes."""

import numpy as np
import pytest

import runhooks as rh
from tests.graph.sources import Loader


def graph_of(data, epochs=1, engine="python"):
    def train_step(total, element):
        return 0.9 * total + element, {"loss": total}

    return rh.graph(train_step, total=0.0, data=data, epochs=epochs, engine=engine)


class Last(rh.SessionRunHook):
    """Keeps the last value of the state."""

    def end(self, session):
        self.total = float(session.run("total"))


@pytest.mark.every_engine
def test_it_trains_to_the_end_of_the_data_and_returns_the_global_step(engine):
    last = Last()
    elements = [1.0, 2.0, 3.0]
    with graph_of(elements, 2, engine).as_default():
        assert rh.train.train("train_op", hooks=[last]) == 6
    total = 0.0
    for element in elements * 2:
        total = np.float32(0.9) * np.float32(total) + np.float32(element)
    assert last.total == pytest.approx(float(total))


def test_it_stops_at_max_steps_and_goes_on_from_its_checkpoint(tmp_path):
    losses = []
    for max_steps, expected in ((2, 2), (4, 4), (4, 4), (None, 6)):
        note = rh.CallHook(lambda loss: losses.append(loss), ["loss"], every_n_steps=1)
        with graph_of(Loader(), 2).as_default():
            assert rh.train.train("train_op", tmp_path, [note], max_steps=max_steps) == expected
    total, plain, loader = 0.0, [], Loader()
    for element in [*loader, *loader]:
        plain.append(total)
        total = 0.9 * total + element
    assert losses == plain


def test_a_hook_ends_it():
    with graph_of(Loader(), None).as_default():
        assert rh.train.train("train_op", hooks=[rh.StopAtStepHook(last_step=4)]) == 4


def test_arguments_of_the_session_are_passed_on(tmp_path):
    saver = rh.Saver(keep=[rh.KeepLast(2)])
    with graph_of(Loader(), 2).as_default():
        rh.summary.scalar("loss")
        arguments = {"save_checkpoint_steps": 1, "save_summaries_steps": 2, "saver": saver}
        rh.train.train("train_op", tmp_path / "a", summary_dir=tmp_path / "b", **arguments)
    assert [it.rpartition("-")[2] for it in saver.last_checkpoints] == ["5", "6"]
    assert list((tmp_path / "b").glob("*.tfevents.*"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train_op": None}, TypeError, "train_op must be given"),
        ({"max_steps": 0}, ValueError, "max_steps must be above 0, got 0"),
        ({"train_op": "trian_op"}, ValueError, "did you mean 'train_op'"),
        ({"log_step_count_steps": -1, "summary_dir": "x"}, ValueError, "log_step_count_steps"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with graph_of(Loader()).as_default(), pytest.raises(error, match=message):
        rh.train.train(**{"train_op": "train_op", **arguments})


# --- saver=


def test_a_session_saves_with_the_saver_that_it_is_given(model, tmp_path):
    saver = rh.Saver(keep=[rh.KeepLast(1)])
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 1, "saver": saver}
    with rh.MonitoredTrainingSession(**arguments) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert [it.rpartition("-")[2] for it in saver.last_checkpoints] == ["3"]
    with rh.MonitoredTrainingSession(**arguments) as sess:
        assert sess.global_step == 3


def test_a_saver_goes_with_a_scaffold_that_has_none(model, tmp_path):
    saver, inits = rh.Saver(), []
    scaffold = rh.Scaffold(init_fn=lambda scaffold, session: inits.append(scaffold.saver))
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, scaffold=scaffold, saver=saver
    ) as sess:
        sess.run(model.train_op)
    assert inits == [saver]
    assert scaffold.saver is saver
    assert saver.last_checkpoints


def test_two_savers_are_refused(model):
    scaffold = rh.Scaffold(saver=rh.Saver())
    with pytest.raises(ValueError, match="saver must be left out for a scaffold that has one"):
        rh.MonitoredTrainingSession(scaffold=scaffold, saver=rh.Saver())


def test_what_cannot_save_is_refused(model):
    with pytest.raises(TypeError, match="saver must be a Saver, got 5"):
        rh.MonitoredTrainingSession(saver=5)
    with pytest.raises(TypeError, match="saver must be a Saver, got 5"):
        rh.MonitoredTrainingSession(scaffold=rh.Scaffold(), saver=5)


@pytest.mark.parametrize("in_scaffold", [False, True])
def test_the_best_cannot_be_kept_where_nothing_is_saved(model, tmp_path, in_scaffold):
    test = rh.EvaluationHook({"loss": model.loss}, every_n_steps=1)
    saver = rh.Saver(keep=[rh.KeepBest(test.metric("loss"))])
    given = {"scaffold": rh.Scaffold(saver=saver)} if in_scaffold else {"saver": saver}
    with pytest.raises(ValueError, match=r"saver has KeepBest.*give checkpoint_dir, or leave"):
        rh.MonitoredTrainingSession(hooks=[test], **given)
    saving = rh.CheckpointSaverHook(tmp_path, save_steps=100, saver=saver)
    with rh.MonitoredTrainingSession(hooks=[test, saving], **given) as session:
        session.run(model.train_op)
    assert rh.best_checkpoint(tmp_path, "loss").step == 1
