"""Real ranks of torch.distributed: whatever happens to one, all end, and at the same step."""

import os
import signal
import time
from pathlib import Path

import pytest

import runhooks as rh

# What waits for seconds: all of it begins at once.
WAITING = {
    "hangs": {"at": {"0": {"3": "hang"}, "1": {"3": "raise"}}, "grace_secs": 1.0},
    "dies": {"at": {"1": {"3": "SIGKILL"}}, "collective": False, "silence_secs": 5.0},
    "stopped": {"at": {"1": {"3": "SIGSTOP"}}, "collective": False, "silence_secs": 5.0},
    "proposes": {"saves": 0.02, "every_secs": 1000.0, "silence_secs": 4.0, "beats": 12},
    "frozen": {
        "at": {"0": {"3": "SIGSTOP"}}, "collective": False, "rank_0_hosts": True,
        "silence_secs": 5.0, "grace_secs": 1.0,
    },
    "frozen in a collective": {
        "at": {"0": {"3": "SIGSTOP"}}, "rank_0_hosts": True,
        "silence_secs": 5.0, "grace_secs": 1.0,
    },
    "dies saving": {
        "saves": 0.02, "asynchronous": True, "dies_saving": [1, 3],
        "silence_secs": 1000.0, "barrier_secs": 1000.0,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def waiting(ranks):
    """The trainings of ``WAITING``, which have begun."""
    return {name: ranks.train(**events) for name, events in WAITING.items()}


def ended(training):
    """What the ranks have found, each of which has ended by itself."""
    statuses, found = training.end()
    assert statuses == [0] * training.size, [training.log(rank) for rank in range(training.size)]
    return found


def errors(found):
    return [it["error"] and it["error"][0] for it in found]


def test_ranks_share_keys_and_meet(ranks):
    program = Path(__file__).with_name("group_program.py")
    both = [ranks.start(f"group-{rank}", program, "torch", ranks.folder, rank) for rank in (0, 1)]
    assert [ranks.launcher.wait(it) for it in both] == [0, 0]


def test_a_rank_has_two_connections_to_the_store_beside_that_of_torch(ranks):
    events = {"saves": 0.02, "asynchronous": True, "last_step": 60}
    found = ended(ranks.train(size=3, **events, counts_connections=True))
    assert errors(found) == [None] * 3
    for it in found:
        assert it["connections"][0] == 1
        assert max(it["connections"]) == it["connections"][-1] == 3


@pytest.mark.parametrize(
    ("event", "reason", "collective"),
    [("SIGTERM", "SIGTERM", True), ("stop", "Events (enough)", False)],
)
def test_what_stops_one_rank_stops_all_at_the_same_step(ranks, event, reason, collective):
    training = ranks.train(at={"1": {"5": event}}, collective=collective)
    found = ended(training)
    assert errors(found) == [None, None]
    assert found[0]["runs"] == found[1]["runs"] >= 5
    assert found[0]["step"] == found[1]["step"] == found[0]["runs"]
    assert [it["reason"] for it in found] == [reason] * 2
    assert f"after rank 1 asked for it: {reason}" in training.log(0)


def test_ranks_stop_after_a_whole_step_of_several_runs(ranks):
    both = [
        ranks.train(parts=4, at={"1": {str(run): event}})
        for run, event in ((5, "SIGTERM"), (6, "stop"))
    ]
    for training in both:
        found = ended(training)
        assert errors(found) == [None, None]
        assert found[0]["runs"] == found[1]["runs"] == 4 * found[0]["step"]
        assert found[0]["step"] == found[1]["step"] >= 2
        assert found[0]["reason"] == found[1]["reason"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_ranks_stop_after_a_whole_iteration(is_asked, ranks):
    iterations = {"runs": 4, "is_asked": is_asked}
    cases = [
        ranks.train(iterations=iterations, **events)
        for events in (
            {"at": {"1": {"6": "SIGTERM"}}},
            {"at": {"0": {"6": "SIGTERM"}, "1": {"7": "SIGTERM"}}},
            {"at": {"1": {"6": "stop"}}},
            {"last_step": 6},
        )
    ]
    for training in cases:
        found = ended(training)
        assert errors(found) == [None, None]
        first, second = ({it: one[it] for it in ("iterations", "step", "runs")} for one in found)
        assert first == second
        assert first["step"] == first["runs"] == 4 * first["iterations"] >= 8
        folder = ranks.folder / training.case
        saved = {int(path.name.rpartition("-")[2]) for path in folder.glob("model.ckpt-*")}
        assert saved == set(range(0, first["step"] + 1, 4))
    assert first["iterations"] == 2  # all ranks have come to the last step


def test_signals_to_all_ranks_stop_them_once(ranks):
    found = ended(ranks.train(at={"0": {"5": "SIGTERM"}, "1": {"4": "SIGTERM"}}))
    assert errors(found) == [None, None]
    assert found[0]["step"] == found[1]["step"] >= 4


def test_ranks_that_stop_by_the_step_stop_at_that_step(ranks):
    found = ended(ranks.train(last_step=4, at={"1": {"2": "sleep"}}, collective=False))
    assert [it["runs"] for it in found] == [4, 4]


@pytest.mark.parametrize("collective", [True, False])
def test_an_error_on_one_rank_ends_the_others_by_its_name(ranks, collective):
    first, second = ended(ranks.train(at={"1": {"5": "raise"}}, collective=collective))
    assert second["error"] == ["ValueError", "it broke"]
    kind, text = first["error"]
    assert kind == "PeerFailedError"
    assert "rank 1" in text
    assert "it broke" in text


def test_an_error_of_a_loader_and_a_nan_end_all_ranks(ranks):
    both = [
        ranks.train(loader_raises={"0": 3}, collective=False),
        ranks.train(nan=[1, 4], collective=False, saves=1000),
    ]
    for training, culprit, cause in zip(both, (0, 1), ("loader broke", "NaN"), strict=True):
        found = ended(training)
        assert cause in found[culprit]["error"][1]
        assert errors(found)[1 - culprit] == "PeerFailedError"
        assert cause in found[1 - culprit]["error"][1]


@pytest.mark.slow
def test_a_rank_that_hangs_after_another_has_failed_is_killed_with_its_stacks(waiting):
    training = waiting["hangs"]
    statuses, found = training.end()
    assert statuses == [-signal.SIGKILL, 0]
    assert found[1]["error"] == ["ValueError", "it broke"]
    assert "rank_program.py" in training.log(0)
    assert "has not come to the end of its run in 1 seconds" in training.log(0)


@pytest.mark.slow
def test_a_rank_that_dies_without_a_word_is_missed(waiting):
    statuses, found = waiting["dies"].end()
    assert statuses == [0, -signal.SIGKILL]
    assert "no sign of life for 5 seconds" in found[0]["error"][1]


@pytest.mark.slow
def test_a_rank_that_is_stopped_is_missed(waiting):
    found = waiting["stopped"].found_by(0)
    os.kill(waiting["stopped"].processes[1], signal.SIGKILL)
    assert "no sign of life" in found["error"][1]


def test_a_rank_that_has_much_to_propose_gives_signs_of_life(waiting):
    found = ended(waiting["proposes"])
    assert errors(found) == [None, None]
    assert "it beats" in found[0]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frozen", "frozen in a collective"])
def test_a_rank_whose_store_is_frozen_ends(waiting, name):
    training = waiting[name]
    found = training.found_by(1)
    os.kill(training.processes[0], signal.SIGKILL)
    words = "has not answered for 5 seconds"
    if found is None:  # it was stuck in gloo
        assert name == "frozen in a collective"
        assert words in training.log(1)
        assert "in all_reduce" in training.log(1)
    else:
        assert found["error"][0] == "UnavailableError"
        assert words in found["error"][1]


def test_a_rank_that_dies_in_a_save_beside_the_loop_ends_the_others(waiting):
    statuses, found = waiting["dies saving"].end()
    assert statuses == [0, -signal.SIGKILL], waiting["dies saving"].log(0)
    assert found[0]["error"][0] == "RuntimeError"  # of gloo
    (note,) = (it for it in found[0]["notes"] if "has probably died" in it)
    assert "so rank 1 has" in note
    assert "model.ckpt-" in note
    assert note in waiting["dies saving"].log(0)


def test_a_rank_that_never_comes_is_named(ranks):
    training = ranks.train(absent=[1], barrier_secs=0.5)
    found = ended(training)
    assert found[0]["error"][0] == "DeadlineExceededError"
    assert "rank 1 has not come" in found[0]["error"][1]


def test_hooks_by_seconds_act_in_the_same_runs_whatever_the_clocks_say(ranks):
    found = ended(ranks.train(every_secs=0.05, clock={"1": 3600.0}, at={"1": {"9": "sleep"}}))
    assert errors(found) == [None, None]
    (acted,) = found[0]["acted"]
    assert found[1]["acted"] == [acted]
    assert [it["step"] for it in found] == [acted[2]] * 2  # all ask to stop there


def test_a_time_limit_stops_all_ranks_at_the_same_step_whatever_the_clocks_say(ranks):
    found = ended(ranks.train(time_limit=0.2, clock={"0": 3600.0}, collective=False))
    assert errors(found) == [None, None]
    assert found[0]["step"] == found[1]["step"]
    assert all("TimeLimitHook" in it["reason"] for it in found)


def test_ranks_with_unequal_data_end_together(ranks):
    training = ranks.train(batches={"0": 8, "1": 5}, collective=False)
    found = ended(training)
    assert errors(found) == [None, None]
    assert found[1]["runs"] == 5
    assert 8 >= found[0]["runs"] >= 5
    if found[0]["runs"] > 5:
        assert "different global steps" in training.log(0)
    assert "different global steps" not in training.log(1)


@pytest.mark.parametrize(
    ("save_steps", "saved"),
    [(1000, ["model.ckpt-0"]), (5, ["model.ckpt-0", "model.ckpt-5"])],
    ids=["neither has just saved", "one has just saved"],
)
def test_ranks_that_end_at_different_steps_keep_the_last_common_checkpoint(
    ranks, save_steps, saved
):
    training = ranks.train(
        batches={"0": 8, "1": 5},
        collective=False,
        saves=True,
        save_steps=save_steps,
        at={"0": {"6": "mark"}},
        ends_after_the_mark=True,
        barrier_secs=10.0,
    )
    first, second = found = ended(training)
    assert errors(found) == [None, None]
    assert first["step"] > second["step"] == 5
    folder = ranks.folder / training.case
    assert sorted(path.name for path in folder.glob("model.ckpt*")) == saved
    assert rh.latest_checkpoint(folder) == str(folder / saved[-1])
    (line,) = [it for it in training.log(0).splitlines() if "different global steps" in it]
    steps = f"5 on rank 1, {first['step']} on rank 0"
    assert f"{steps}: their data differ in length, so no checkpoint is saved at the end" in line
    assert line.endswith(f"the last common checkpoint remains, {folder / saved[-1]}")
    assert "different global steps" not in training.log(1)


@pytest.mark.parametrize("draws", [True, False], ids=["in the run", "before it"])
def test_data_that_ends_while_others_wait_in_a_collective_ends_all_with_one_error(ranks, draws):
    batches = {"0": 5, "1": 8}
    at = {"0": {"5": "wait for the mark"}, "1": {"-6": "mark"}}
    training = ranks.train(batches=batches, draws=draws, grace_secs=1.0, saves=1000, at=at)
    statuses, found = training.end()
    assert statuses[0] == 0
    assert errors(found)[0] == "PeerFailedError"
    for words in (
        "rank 0 of this training has failed: its loop has ended after 5 runs, at global step 5",
        "rank 1 has not come out of run 6 in 1 seconds",
        "drop_last=True",
    ):
        assert words in found[0]["error"][1]
    if statuses[1] == 0:  # else rank 0 took more than the grace time to end
        assert found[1]["error"] == found[0]["error"]
    assert "in all_reduce" in training.log(1)
    folder = ranks.folder / training.case
    assert {it.name for it in folder.glob("model.ckpt*")} == {"model.ckpt-0"}


def test_data_of_known_length_that_end_before_others_begin_a_run_end_all_well(ranks):
    batches = {"0": 5, "1": 8}
    at = {"1": {"5": "wait for the mark"}}
    found = ended(ranks.train(batches=batches, draws=True, at=at, marks_what_it_heard_of=1))
    assert errors(found) == [None, None]
    assert [(it["runs"], it["step"]) for it in found] == [(5, 5)] * 2
    assert found[0]["total"] == found[1]["total"]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            {"more_on": [1]},
            ("only rank 1 has the hook TimeLimitHook", "rank 0", "runs_on = 'chief'"),
        ),
        ({"other_name": 1}, ("rank 1", "rank 0", "'other'")),
        ({"is_chief": [False, False]}, ("no rank is the chief", "is_chief=True")),
    ],
)
def test_ranks_that_differ_are_refused_before_they_begin(ranks, events, words):
    for it in ended(ranks.train(**events)):
        assert it["error"][0] in ("RuntimeError", "ValueError")
        assert "started" not in it
        for word in words:
            assert word in it["error"][1]


def test_of_two_chiefs_both_are_refused(ranks):
    for it in ended(ranks.train(3, is_chief=[True, False, True], saves=1000)):
        assert it["error"][0] == "ValueError"
        assert "ranks 0, 2 are the chief" in it["error"][1]


def test_the_chief_alone_writes_and_logs(ranks):
    training = ranks.train(last_step=3, saves=1000, is_chief=[False, True])
    found = ended(training)
    assert errors(found) == [None, None]
    folder = ranks.folder / training.case
    assert {it.name for it in folder.iterdir()} >= {"model.ckpt-0", "model.ckpt-3"}
    assert len(list(folder.glob("events.*"))) == 1
    assert "saved checkpoint" in training.log(1)
    assert "saved checkpoint" not in training.log(0)
    assert "all 2 ranks stop before run 4" in training.log(1)


@pytest.mark.parametrize("name", ["model/weight", "gradients/model"])
def test_a_chief_that_asks_alone_for_what_all_hold_is_refused(ranks, name):
    first, second = ended(ranks.train(asks_for=name, on_chief=True))
    assert first["error"][0] == "RuntimeError"
    assert f"the hook AsksOnChief asks for '{name}'" in first["error"][1]
    assert second["error"][0] == "PeerFailedError"
    assert first["runs"] == 0


def test_a_chief_may_ask_for_what_each_rank_has(ranks):
    assert errors(ended(ranks.train(asks_for="loss", on_chief=True))) == [None, None]


def test_all_ask_for_what_all_hold_and_the_chief_logs_it(ranks):
    training = ranks.train(asks_for="global_gradient_norm")
    found = ended(training)
    assert errors(found) == [None, None]
    assert sorted(found[0]["measured"]) == sorted(found[1]["measured"]) != []
    assert "global_gradient_norm = " in training.log(0)
    assert "global_gradient_norm = " not in training.log(1)


def test_a_value_that_stays_divided_is_refused_with_what_makes_it_whole(ranks):
    found = ended(ranks.train(asks_for="model/weight"))
    assert "TypeError" in [it["error"][0] for it in found]
    assert all("rh.call(lambda w: w.full_tensor(), tensor)" in it["error"][1] for it in found)


def test_two_trainings_in_one_directory_are_refused(ranks):
    first = ranks.train(saves=1000, at={"0": {"-1": "wait"}})
    while not all(first.has_started(rank) for rank in (0, 1)):
        time.sleep(0.01)
    second = ranks.train(saves=1000, directory=first.case)
    found = ended(second)
    first.let_go()
    assert found[0]["error"][0] == "RuntimeError"
    assert "another process" in found[0]["error"][1]
    assert found[1]["error"][0] == "PeerFailedError"
    assert errors(ended(first)) == [None, None]
