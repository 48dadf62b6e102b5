"""Elements that are an error, which the loop catches: a resumed run passes over them as before."""

import json
from pathlib import Path

import pytest

import runhooks as rh
from tests.graph import unreadable_program
from tests.graph.unreadable_program import SOURCES, Readings, ReadingsWithLength, take, train

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("runs", [1, 3, 4])  # of each process, where it ends with what was saved
def test_a_resumed_run_passes_over_what_could_not_be_read(source, runs, tmp_path):
    undisturbed = train(SOURCES[source]())
    assert undisturbed.count("OSError") == 2
    assert undisturbed.count("end") == 2
    found, again = [], False
    while len(found) < len(undisturbed):
        more = train(SOURCES[source](), tmp_path, runs + again)
        again = more[-1] == "OSError"  # no step was saved since, so it is read once more
        found += more[: len(more) - again]
    assert found == undisturbed


def test_a_resumed_run_passes_over_what_a_worker_could_not_read(torch_launcher, tmp_path):
    def drawn(folder, kill_at=0):
        log = tmp_path / "log"
        process = torch_launcher.start(
            log, Path(unreadable_program.__file__), tmp_path / folder, kill_at
        )
        assert torch_launcher.wait(process) == 0, log.read_text()
        return json.loads(log.read_text().splitlines()[-1])

    undisturbed = drawn("undisturbed")
    assert undisturbed.count("OSError") == 2
    kill_at = undisturbed.index("OSError") + 2
    assert drawn("killed", kill_at) + drawn("killed") == undisturbed


@pytest.mark.every_engine
def test_hooks_act_at_the_end_of_an_epoch_in_which_something_could_not_be_read(engine, tmp_path):
    undisturbed = train(ReadingsWithLength(), engine=engine)
    epoch = [0.0, 1.0, "OSError", 3.0, 4.0, "end", 5.0]
    assert undisturbed == epoch * 2
    before = train(ReadingsWithLength(), tmp_path, 10, engine)
    assert before + train(ReadingsWithLength(), tmp_path, engine=engine) == undisturbed


@pytest.mark.parametrize("make", [Readings, ReadingsWithLength])
def test_an_epoch_whose_last_element_cannot_be_read_ends_in_the_next_run(make, tmp_path):
    undisturbed = train(make({5}))
    epoch = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert undisturbed[:8] == [*epoch, "OSError", "end", 0.0]
    before = train(make({5}), tmp_path, 7)
    assert before + train(make({5}), tmp_path) == undisturbed


@pytest.mark.parametrize("make", [Readings, ReadingsWithLength])
def test_a_loop_that_catches_everything_ends_with_the_data(make):
    found = train(make({5}), caught=Exception)
    assert found[-3:] == [4.0, "OSError", "OutOfRangeError"]


def test_the_first_element_of_an_epoch_may_be_unreadable(tmp_path):
    undisturbed = train(ReadingsWithLength({0}))
    assert undisturbed == ["OSError", 1.0, 2.0, 3.0, 4.0, "end", 5.0] * 2
    before = train(ReadingsWithLength({0}), tmp_path, 7)
    assert before.pop() == "OSError"
    assert before + train(ReadingsWithLength({0}), tmp_path) == undisturbed


def test_what_can_be_read_again_stays_where_it_was(tmp_path):
    before = train(ReadingsWithLength({1}), tmp_path, 4)
    assert before == [0.0, "OSError", 2.0, 3.0]
    after = train(ReadingsWithLength({}), tmp_path)
    assert after[:2] == [4.0, "end"]


def test_what_could_be_read_before_is_named_when_it_cannot(tmp_path):
    train(ReadingsWithLength({2}), tmp_path, 5)
    with pytest.raises(OSError, match="cannot read 1") as caught:
        train(ReadingsWithLength({1, 2}), tmp_path)
    told = " ".join(caught.value.__notes__)
    assert (
        "element 2 of this epoch, which must be readable to be skipped, as 5 were drawn before"
        in told
    )
    assert "rh.InitFrom" in told


class Generated(Readings):
    """The same from a generator, which an error ends."""

    def __iter__(self):
        yield from super().__iter__()


def test_a_generator_that_an_error_ends_is_no_way_past_it(tmp_path):
    train(Readings({2}), tmp_path, 5)
    with pytest.raises(RuntimeError, match=r"5 elements .* ends after 3.*cannot read 2.*InitFrom"):
        train(Generated({2}), tmp_path)


class GeneratedWithLength(Generated, ReadingsWithLength):
    pass


def counted_to_the_end(data, *hooks, epochs=1):
    """Return what a loop that catches errors has drawn, and why it has ended."""
    seen = []
    graph = rh.graph(take, ["value"], total=0, data=data, epochs=epochs)
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            try:
                seen.append(float(session.run(["train_op", "value"])[1]))
            except OSError:
                seen.append("error")
    return seen, session.stop_reason


def losses(caplog):
    return [it for it in caplog.messages if "a generator ends with an error that it raises" in it]


def check_told(seen, reason, caplog, left):
    error = "OSError('cannot read 2')"
    assert seen == [0.0, 1.0, "error"] * len(left)
    assert reason == f"the input 'data' ended after it raised {error}"
    for line, what in zip(losses(caplog), left, strict=True):
        assert line.startswith(f"the input 'data' ended after it raised {error}: ")
        assert f"what was left of {what} is lost. Catch the error inside the generator" in line
    assert not any("len()" in it for it in caplog.messages)


@pytest.mark.parametrize(
    "make",
    [lambda: lambda step: iter(Generated({step + 2})), lambda: iter(Generated({2}))],
    ids=["function", "iterator"],
)
def test_a_generator_that_an_error_ends_is_told_of(make, caplog):
    check_told(*counted_to_the_end(make()), caplog, ["it"])


@pytest.mark.parametrize("make", [Generated, GeneratedWithLength])
@pytest.mark.parametrize("goes_by_epochs", [False, True])
def test_each_epoch_that_an_error_ends_is_told_of(make, goes_by_epochs, caplog):
    hooks = [rh.CallHook(lambda: None, every_n_epochs=1)] * goes_by_epochs
    found = counted_to_the_end(make({2}), *hooks, epochs=3)
    check_told(*found, caplog, [f"its epoch {number}" for number in (1, 2, 3)])


@pytest.mark.parametrize("make", [Readings, ReadingsWithLength])
def test_an_iterator_that_goes_on_after_an_error_has_lost_nothing(make, caplog):
    seen, reason = counted_to_the_end(make({2}), epochs=2)
    assert seen == [0.0, 1.0, "error", 3.0, 4.0, 5.0] * 2
    assert "(epochs=2)" in reason
    assert losses(caplog) == []


@pytest.mark.parametrize("make", [GeneratedWithLength, ReadingsWithLength])
def test_an_error_in_place_of_the_last_element_has_lost_nothing(make, caplog):
    seen, reason = counted_to_the_end(make({5}), epochs=2)
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0, "error"] * 2
    assert "(epochs=2)" in reason
    assert losses(caplog) == []


class Opened(Readings):
    """Data that could not be opened the first times."""

    def __init__(self, failures):
        super().__init__(())
        self.failures = failures

    def __iter__(self):
        if self.failures:
            raise OSError(f"cannot open, {self.failures.pop()}")
        return super().__iter__()

    def fail(self):
        self.failures.append("again")


def test_data_that_cannot_be_opened_for_an_epoch_are_opened_by_the_next_run():
    source, seen = Opened([]), []
    graph = rh.graph(take, ["value"], total=0, data=source, epochs=3)
    with graph.as_default(), rh.MonitoredSession() as session:
        while not session.should_stop():
            if len(seen) == 6:
                source.fail()
            try:
                seen.append(float(session.run(["train_op", "value"])[1]))
            except OSError:
                seen.append("error")
    epoch = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert seen == [*epoch, "error", *epoch, *epoch]
