"""Means over an epoch and of an evaluation are those of all ranks, here threads of one process."""

import threading

import numpy as np
import pytest

import runhooks as rh
from runhooks.ranks import LocalGroup
from tests.session.test_agreement import on_all

BATCHES = [[[0.0, 1.0], [2.0]], [[10.0], [20.0, 30.0]], [[100.0], [200.0]]]  # of each rank
ALL = [it for batches in BATCHES for batch in batches for it in batch]


def step(w, x):
    return {"w": w, "loss": np.mean(x)}


def evaluated(x):
    return {"loss": np.mean(x)}


def trained(group, hooks, **options):
    """Train on what the rank has; return its session's hooks."""
    data = [np.array(it) for it in BATCHES[group.rank]]
    with rh.graph(step, ["loss"], data=data, epochs=2, w=0.0).as_default():
        made = hooks()
        with rh.MonitoredTrainingSession(hooks=made, log_step_count_steps=None, **options) as it:
            while not it.should_stop():
                it.run("train_op")
    return made


def counted(group, folder, restored, values):
    """Go on with an epoch that is counted, fed by hand; return its mean before and after."""
    with rh.graph(step, ["loss"], steps_per_epoch=100, w=0.0).as_default() as graph:
        mean = rh.epoch_mean("loss")
        session, saver = rh.Session(graph), rh.Saver()
        if restored:
            saver.restore(session, folder / f"model.ckpt-{restored}")
        found = [float(session.run(mean))]
        for it in values[group.rank]:
            session.run("train_op", {"x": np.array(it)})
        saver.save(session, folder / "model.ckpt", session.global_step)
        return [*found, float(session.run(mean))]


class Asks(rh.SessionRunHook):
    """Asks for the mean at one step."""

    def __init__(self, step, runs_on="all"):
        self.step, self.runs_on = step, runs_on

    def before_run(self, run_context):
        if run_context.session.global_step == self.step:
            return rh.SessionRunArgs("epoch_mean/loss")
        return None


def test_the_mean_of_an_epoch_is_that_of_all_ranks_and_the_chief_writes_it(tmp_path):
    def train(group):
        found = []

        def hooks():
            mean = rh.epoch_mean("loss")
            summary = rh.summary.scalar("mean", mean)
            by_epoch = rh.Trigger(every_epochs=1)
            return [
                rh.SummarySaverHook(trigger=by_epoch, output_dir=tmp_path, summary_op=summary),
                rh.CallHook(found.append, [mean], every_n_epochs=1),
            ]

        trained(group, hooks)
        return found

    for found in on_all(LocalGroup.together(3), train):
        assert found == [np.mean(ALL)] * 2
    assert (
        rh.events.read(tmp_path).only.scalars["mean"].values.tolist()
        == [np.float32(np.mean(ALL))] * 2
    )


def test_stopped_in_mid_epoch_and_resumed_the_mean_is_that_of_the_whole_epoch(tmp_path):
    def train(group):
        found = []

        def hooks():
            mean = rh.epoch_mean("loss")
            call = rh.CallHook(found.append, [mean], every_n_epochs=1)
            return [call] if resumed else [call, rh.StopAtStepHook(last_step=3)]

        trained(group, hooks, checkpoint_dir=tmp_path)
        return found

    resumed = False
    groups = LocalGroup.together(3)
    on_all(groups, train)
    resumed = True
    assert on_all(groups, train) == [[np.mean(ALL)]] * 3


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("are_equal", [True, False])
def test_what_another_number_of_ranks_has_added_up_counts(tmp_path, sizes, are_equal):
    before = [[1.0, 2.0] if are_equal else [1.0 + rank, 5.0] for rank in range(sizes[0])]
    after = [[100.0 + rank] for rank in range(sizes[1])]

    def go_on(size, *args):
        return on_all(LocalGroup.together(size), lambda group: counted(group, tmp_path, *args))

    go_on(sizes[0], None, before)
    mean = pytest.approx(np.mean(before))
    whole = pytest.approx(np.mean([*np.ravel(before), *np.ravel(after)]))
    assert go_on(sizes[1], 2, after) == [[mean, whole]] * sizes[1]


def test_a_hook_that_asks_on_one_rank_alone_is_named():
    def train(group):
        return trained(group, lambda: [rh.epoch_mean("loss"), Asks(1, "chief")][1:])

    error, *_ = on_all(LocalGroup.together(3), train)
    assert isinstance(error, RuntimeError)
    assert "the hook Asks asks for 'epoch_mean/loss' on one rank" in str(error)
    assert "in hooks and not in chief_only_hooks, with hook.runs_on = 'all'" in str(error)


def test_a_function_of_the_chief_alone_gets_the_mean_of_all_ranks():
    def train(group):
        called = []
        data = [np.array(it) for it in BATCHES[group.rank]]
        with rh.graph(step, ["loss"], data=data, epochs=2, w=0.0).as_default():
            mean = rh.epoch_mean("loss")
            by_epoch = rh.Trigger(every_epochs=1, at_end=True)
            final = rh.FinalOpsHook(mean)
            chiefs = [
                rh.CallHook(lambda *it: called.append(it), ["epoch", mean], every_n_epochs=1),
                rh.CallHook(called.append, [mean], trigger=by_epoch),
                final,
            ]
            rh.train.train("train_op", chief_only_hooks=chiefs)
        return called, final.final_ops_values

    mean = np.mean(ALL)
    (called, final), *others = on_all(LocalGroup.together(3), train)
    assert (called, final) == ([(1, mean), mean, (2, mean), mean], mean)
    assert [called for called, _ in others] == [[], []]


def test_ranks_that_ask_in_different_runs_are_named():
    def train(group):
        return trained(group, lambda: [rh.epoch_mean("loss"), Asks(group.rank % 2)][1:])

    for error in on_all(LocalGroup.together(3), train):
        # Who has not come to it itself is told of rank 0's error.
        assert "in the run after step 1, and rank 0 in the run after step 0" in str(error)


@pytest.mark.parametrize("runs_on", ["all", "chief"])
def test_metrics_of_an_evaluation_are_those_of_all_ranks_that_make_it(runs_on):
    def train(group):
        data = [np.array(it) for it in BATCHES[group.rank]]

        def hooks():
            test = rh.EvaluationHook(evaluated, data, every_n_epochs=2)
            test.runs_on = runs_on
            return [test]

        (test,) = trained(group, hooks)
        return test.metrics_by_step() if runs_on == "all" or group.is_chief else None

    found = on_all(LocalGroup.together(3), train)
    if runs_on == "all":
        assert found == [{4: {"loss": np.mean(ALL)}}] * 3
    else:
        assert found == [{4: {"loss": 1.0}}, None, None]


def test_a_metric_is_what_all_ranks_have_whatever_it_is_called():
    def train(group):
        def evaluated(x):
            return {"": np.mean(x), "each": x}

        (test,) = trained(
            group,
            lambda: [rh.EvaluationHook(evaluated, [np.ones(1 + group.rank)], every_n_epochs=2)],
        )
        return test.metrics_by_step()

    assert on_all(LocalGroup.together(3), train) == [{4: {"": 1.0}}] * 3


def test_an_evaluation_at_the_end_may_be_at_different_steps():
    def train(group):
        data = [np.array(it) for it in BATCHES[group.rank]]
        with rh.graph(step, ["loss"], data=data[: 2 - group.rank], epochs=1, w=0.0).as_default():
            test = rh.EvaluationHook(evaluated, data, trigger=rh.Trigger(at_end=True))
            with rh.MonitoredSession(hooks=[test]) as session:
                while not session.should_stop():
                    session.run("train_op")
        return list(test.metrics_by_step().values())

    both = [it for batches in BATCHES[:2] for batch in batches for it in batch]
    assert on_all(LocalGroup.together(2), train) == [[{"loss": np.mean(both)}]] * 2


def test_ranks_replace_a_checkpoint_by_one_that_an_evaluation_at_the_end_finds_to_be_the_best(
    tmp_path,
):
    def train(group):
        data = [np.array(it) for it in BATCHES[group.rank]]
        with rh.graph(step, ["loss"], data=data, epochs=2, w=0.0).as_default():
            test = rh.EvaluationHook(
                lambda step, x: {"at": step + 0.0 * np.mean(x)},
                data,
                trigger=rh.Trigger(every_steps=3, at_end=True),
            )
            saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(test.metric("at"))])
            with rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path, hooks=[test], saver=saver, save_checkpoint_steps=2
            ) as session:
                while not session.should_stop():
                    session.run("train_op")
        return [path.rpartition("-")[2] for path in saver.last_checkpoints]

    groups = LocalGroup.together(3)
    assert on_all(groups, train) == [["4"]] * 3
    assert rh.best_checkpoint(tmp_path, "at").metrics == {"at": 4.0}
    assert on_all(groups, train) == [[]] * 3  # nothing is new


def test_an_evaluation_at_the_end_is_made_by_a_rank_that_has_just_made_one_at_another_step():
    is_further = threading.Event()

    def train(group):
        group.barrier_secs = 10.0
        data = iter([np.ones(2)] * (3 - group.rank))
        with rh.graph(step, ["loss"], data=data, w=0.0).as_default():
            trigger = rh.Trigger(on_steps=[2], at_end=True)
            test = rh.EvaluationHook(evaluated, [np.full(2, group.rank)], trigger=trigger)
            with rh.MonitoredSession(hooks=[test]) as session:
                while not session.should_stop():
                    if session.global_step == 2 and group.rank == 1:
                        assert is_further.wait(30.0)
                    session.run("train_op")
                    if session.global_step == 3:
                        is_further.set()
        return test.metrics_by_step()

    loss = {"loss": 0.5}
    assert on_all(LocalGroup.together(2), train) == [{2: loss, 3: loss}, {2: loss}]
