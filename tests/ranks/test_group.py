"""``Group``: keys, waits, barriers and failures."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from runhooks.errors import DeadlineExceededError, PeerFailedError
from runhooks.ranks import AloneGroup, LocalGroup, current_group, entered


def together(groups, act):
    """Call ``act(group)`` for all ranks at once; return what each returned or raised."""

    def caught(group):
        try:
            return act(group)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(caught, groups))


@pytest.fixture
def groups():
    return LocalGroup.together(3)


def test_a_process_without_a_runtime_is_alone_and_waits_for_nobody():
    group = current_group()
    assert isinstance(group, AloneGroup)
    assert (group.rank, group.size, group.is_chief) == (0, 1, True)
    group.barrier("start", timeout_secs=0)
    assert group.agree("names", "a", "".join, timeout_secs=0) == "a"


def test_the_group_that_is_entered_is_the_current_one(groups):
    with entered(groups[1]):
        assert current_group() is groups[1]
        with entered(groups[2]):
            assert current_group() is groups[2]
    assert current_group().size == 1


def test_keys_are_shared_by_all_ranks(groups):
    groups[0].set("key", "a")
    assert groups[1].get("key") == groups[2].listen("key") == "a"
    groups[1].delete("key")
    groups[1].delete("key")
    assert groups[0].get("key") is None


def test_only_the_first_sets_a_key_once(groups):
    assert together(groups, lambda it: it.set_once("key", str(it.rank))) in (
        ["0"] * 3,
        ["1"] * 3,
        ["2"] * 3,
    )


def test_all_ranks_get_what_rank_0_concludes_from_the_values_of_all_each_time(groups):
    def conclude(values):
        return f"{threading.current_thread().name}: {' '.join(values)}"

    def agree(it, turn):
        threading.current_thread().name = f"rank {it.rank}"
        return it.agree("g", f"{turn}-{it.rank}", conclude)

    for turn in range(3):
        values = together(groups, lambda it, turn=turn: agree(it, turn))
        assert values == [f"rank 0: {turn}-0 {turn}-1 {turn}-2"] * 3


def test_meetings_of_the_past_leave_no_keys(groups):
    for _ in range(9):
        together(groups, lambda it: it.barrier("b"))
    assert len(groups[0]._memory.values) <= 4


@pytest.mark.parametrize("missing", [0, 2])
def test_a_barrier_that_takes_too_long_names_who_is_missing(groups, missing):
    present = [it for it in groups if it.rank != missing]
    errors = together(present, lambda it: it.barrier("save", timeout_secs=0.1))
    for error in errors:
        assert isinstance(error, DeadlineExceededError)
        assert f"'save': rank {missing} has not come" in str(error)


def test_whoever_waits_hears_of_a_failure(groups):
    groups[1].fail("ValueError('bad')")
    groups[2].fail("another that came later")
    for error in together(groups[::2], lambda it: it.barrier("save", timeout_secs=60)):
        assert isinstance(error, PeerFailedError)
        assert (error.rank, error.cause) == (1, "ValueError('bad')")
        assert "rank 1 of this training has failed: ValueError('bad')" in str(error)
    assert groups[1].failure() is None


def test_a_rank_hears_what_others_say_of_it(groups):
    groups[1].fail("it sleeps", rank=2)
    for group in groups:
        assert (group.failure().rank, group.failure().cause) == (2, "it sleeps")


def test_a_new_training_knows_nothing_of_the_failure_before(groups):
    groups[1].fail("it")
    for group in groups:
        group.start_training()
    assert [it.failure() for it in groups] == [None] * 3
    assert together(groups, lambda it: it.agree("a", "x", "".join)) == ["xxx"] * 3


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_is_below_the_size(rank, size):
    with pytest.raises(ValueError, match="must"):
        LocalGroup(rank, size)
