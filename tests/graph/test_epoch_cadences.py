"""Hooks that go by epochs: at which steps they act, on every kind of source, after a kill, too."""

import itertools
import json
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runhooks as rh
from tests.graph import epoch_program
from tests.graph.epoch_program import LENGTH, SOURCES, UNDIVIDED, WithoutLength

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

PROGRAM = Path(epoch_program.__file__)

WHOLE = [{"every_epochs": 1}, {"every_epochs": 2}, {"every_epochs": 1, "every_steps": 3}]
PARTS = [{"every_epochs": 0.5}, {"every_epochs": 1.5, "every_steps": 5}]


LOADERS = {"loader", "workers", "stateful", "grain"}


def triggers_of(source):
    return WHOLE if source in UNDIVIDED else WHOLE + PARTS


@pytest.fixture(scope="module")
def loader_launcher(launcher_with):
    """Starts programs with loaders of torch and grain, on any engine."""
    return launcher_with(
        *("runhooks.plain", "runhooks.engines.numpy.engine", "numpy.ma"),
        *("runhooks.training", "runhooks.hooks.others", "jax.numpy", "grain"),
        *("torchdata.stateful_dataloader", "torch.utils.data"),
    )


@pytest.fixture
def run(request, tmp_path):
    """Trains in a process, which may be killed; returns what it has said."""
    log, case = tmp_path / "log", tmp_path / "case"

    def run(**arguments):
        is_plain = arguments["source"] not in LOADERS and "engine" not in arguments
        launcher = request.getfixturevalue("plain_launcher" if is_plain else "loader_launcher")
        case.write_text(json.dumps(arguments, default=str))
        status = launcher.wait(launcher.start(log, PROGRAM, case))
        assert status == (-signal.SIGKILL if arguments.get("kill_at") else 0), log.read_text()
        return log.read_text()

    return run


@pytest.fixture
def killed(run, tmp_path):
    """Trains in processes, each killed at one of ``kills``, and a last one; returns all notes."""
    counter = itertools.count()

    def train(kills, **arguments):
        folder = tmp_path / f"killed-{next(counter)}"
        folder.mkdir()
        noted = []
        for kill_at in [*kills, None]:
            notes = folder / f"{kill_at}.notes"
            run(**arguments, notes=notes, folder=folder / "run", kill_at=kill_at)
            found = epoch_program.read(notes)
            # Steps after the last checkpoint are made again, and are the same.
            again = noted[found[0][0] - 1 :] if found else []
            assert again == found[: len(again)]
            noted += found[len(again) :]
        return noted

    return train


def steps_of(noted, hook):
    return [step for step, _, _, calls in noted if hook in [number for number, _ in calls]]


@pytest.mark.every_engine
@pytest.mark.parametrize("source", [it for it in SOURCES if it != "workers"])
def test_hooks_act_at_the_ends_of_epochs_with_values_of_that_very_run(source, engine, tmp_path):
    epoch_program.train(source, triggers_of(source), tmp_path / "notes", engine=engine)
    noted = epoch_program.read(tmp_path / "notes")
    assert [step for step, *_ in noted] == list(range(1, 3 * LENGTH + 1))
    assert [epoch for _, epoch, *_ in noted] == [1] * LENGTH + [2] * LENGTH + [3] * LENGTH
    assert steps_of(noted, 0) == [4, 8, 12]
    assert steps_of(noted, 1) == [8]
    assert steps_of(noted, 2) == [3, 4, 6, 8, 9, 12]
    if source not in UNDIVIDED:
        assert steps_of(noted, 3) == [2, 4, 6, 8, 10, 12]
        assert steps_of(noted, 4) == [5, 6, 10, 12]
    for _, epoch, loss, calls in noted:
        assert {(told["epoch"], told["loss"]) for _, told in calls} <= {(epoch, loss)}


@pytest.mark.parametrize(
    "source",
    [pytest.param(it, marks=[] if it == "list" else pytest.mark.slow) for it in SOURCES],
)
def test_killed_at_every_step_hooks_are_called_as_if_undisturbed(source, killed):
    case = {"source": source, "triggers": triggers_of(source)}
    undisturbed = killed([], **case)
    steps = range(1, 3 * LENGTH + 1)
    assert killed(steps, save=1, **case) == undisturbed
    assert killed([2, 4, 11], save=3, **case) == undisturbed  # one or two steps after a save


@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_killed_in_mid_epoch_on_every_engine(engine, killed):
    case = {"source": "loader", "triggers": WHOLE, "engine": engine}
    assert killed([2, 7], **case) == killed([], **case)


cadences = st.sampled_from([*WHOLE, *PARTS, {"every_steps": 2}, {"every_epochs": 0.25}])


@pytest.mark.slow
@given(
    source=st.sampled_from(sorted(SOURCES)),
    triggers=st.lists(cadences, min_size=1, max_size=3),
    save=st.sampled_from([1, 2, 3, 5, 100]),
    kills=st.sets(st.integers(1, 3 * LENGTH), min_size=1, max_size=3),
)
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_killed_anywhere_at_any_cadence(source, triggers, save, kills, killed):
    if source in UNDIVIDED:
        triggers = [it for it in triggers if it.get("every_epochs", 1) in (1, 2)]
    case = {"source": source, "triggers": triggers}
    assert killed(sorted(kills), save=save, **case) == killed([], **case)


class Epochs(rh.SessionRunHook):
    """Notes the steps at which a number of epochs is done."""

    def __init__(self, every=1):
        self.timer, self.steps = rh.Timer(rh.Trigger(every_epochs=every)), []

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step, session.epochs)

    def next_due(self):
        return self.timer.due()

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        if self.timer.should_trigger_for_step(step):
            self.timer.update_last_triggered_step(step)
            self.steps.append(step)


def count_step(total, batch):
    return total + 1


def opened(hooks, data, epochs=None, folder=None, **arguments):
    """A session that trains on ``data``."""
    graph = rh.graph(count_step, total=0, data=data, epochs=epochs, **arguments)
    with graph.as_default():
        return rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_summaries_steps=None, log_step_count_steps=None
        )


@pytest.mark.parametrize("data", [[1, 2, 3], WithoutLength()], ids=["length", "no length"])
def test_the_loop_ends_at_the_last_element_without_another_run(data):
    hook = Epochs()
    session = opened([hook], data, epochs=2)
    runs = 0
    with session:
        while not session.should_stop():
            session.run("train_op")
            runs += 1
    assert runs == 2 * len(list(data)) == session.global_step
    assert hook.steps == [runs // 2, runs]
    assert "are done (epochs=2)" in session.stop_reason or "no more elements" in session.stop_reason


@pytest.mark.parametrize("data", [[1, 2, 3], WithoutLength()], ids=["length", "no length"])
def test_a_loop_that_asks_nothing_ends_well(data):
    hook = Epochs()
    session = opened([hook], data, epochs=2)
    with session:
        while True:
            session.run("train_op")
    assert session.global_step == 2 * len(list(data))
    assert hook.steps == [len(list(data)), 2 * len(list(data))]


@pytest.mark.parametrize("make", [lambda: [5], lambda: Iterable([5])], ids=["list", "iterable"])
def test_an_epoch_of_one_element(make):
    one, two = Epochs(), Epochs(2)
    session = opened([one, two], make(), epochs=4)
    with session:
        while not session.should_stop():
            session.run("train_op")
    assert (one.steps, two.steps) == ([1, 2, 3, 4], [2, 4])
    assert session.epoch is None  # it is closed


@pytest.mark.parametrize("elements", [[5], [5, 6]])
@pytest.mark.parametrize("stop_at", [None, 1, 2, 3])
def test_an_iterable_of_few_elements_gives_hooks_the_values_of_its_last(
    elements, stop_at, tmp_path
):
    called = []
    for last in (stop_at, None):
        hooks = [rh.StopAtStepHook(last_step=last)] if last else []
        note = rh.CallHook(
            lambda *values: called.append(tuple(map(int, values))),
            ["epoch", "batch"],
            every_n_epochs=1,
        )
        with opened([note, *hooks], Iterable(elements), epochs=3, folder=tmp_path) as session:
            while not session.should_stop():
                session.run("train_op")
    assert called == [(epoch, elements[-1]) for epoch in (1, 2, 3)]


class Buckets:
    """Elements whose number differs from epoch to epoch, as in batches of similar examples."""

    lengths = (3, 1, 4, 2)

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.lengths[self.epoch]

    def __iter__(self):
        return iter(range(10 * self.epoch, 10 * self.epoch + len(self)))


@pytest.mark.parametrize("every", [1, 0.5])
@pytest.mark.parametrize("stop_at", [1, 2, 3, 4, 5, 8, 9])
def test_each_epoch_has_a_length_of_its_own(stop_at, every, tmp_path):
    called = []
    for last in (stop_at, 100):
        note = rh.CallHook(
            lambda *values: called.append(tuple(map(int, values))),
            ["epoch", "batch"],
            every_n_epochs=every,
        )
        hooks = [note, rh.StopAtStepHook(last_step=last)]
        with opened(hooks, Buckets(), epochs=4, folder=tmp_path) as session:
            while not session.should_stop():
                session.run("train_op")
    ends = [(1, 2), (2, 10), (3, 23), (4, 31)]
    halves = [(1, 1), (3, 21), (4, 30)] if every == 0.5 else []  # of one element it is the end
    assert called == sorted(ends + halves)


@pytest.mark.parametrize("source", ["list", "no length"])
@pytest.mark.parametrize("failed", [{2}, {3}, {2, 4}, {6}])
def test_a_run_that_fails_has_drawn(failed, source):
    elements, runs = {"list": [0, 1, 2], "no length": Iterable([0, 1, 2])}[source], []

    def step(total, batch):
        runs.append(int(batch))
        if len(runs) in failed:
            raise ZeroDivisionError
        return total + 1, {"seen": batch}

    graph, called = rh.graph(step, total=0, data=elements, epochs=3), []
    with graph.as_default():
        note = rh.CallHook(lambda *it: called.append(it), ["epoch", "seen"], every_n_epochs=1)
        with rh.MonitoredSession(hooks=[note]) as session:
            while not session.should_stop():
                try:
                    session.run("train_op")
                except ZeroDivisionError:
                    continue
    # A hook that is due in a run that fails takes part in the next one.
    expected = [(1, 2), (2, 2), (3, 2)]
    if 3 in failed:
        expected[0] = (2, 0)
    if 6 in failed:
        expected[1] = (3, 0)
    assert called == expected


class Iterable:
    """An iterable without a length."""

    def __init__(self, elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


@pytest.mark.parametrize("source", ["list", "no length", "loader"])
def test_runs_that_draw_and_make_no_step_move_the_end_of_the_epoch(source):
    """Where the data tell the epochs, elements count, whoever draws them."""
    hook = Epochs()
    session = opened([hook], **SOURCES[source](), epochs=2)
    epochs = []
    with session:
        session.run("train_op")
        session.run("batch", hooks=False)
        for _ in range(LENGTH):
            session.run("train_op")
            epochs.append(session.epoch)
    assert hook.steps == [3]
    assert epochs == [1, 1, 2, 2]


def test_steps_per_epoch_counts_steps_alone():
    hook = Epochs()
    session = opened([hook], [1, 2, 3, 4, 5], steps_per_epoch=2)
    with session:
        session.run("train_op")
        session.run("batch", hooks=False)
        session.run("train_op")
        assert (session.epoch, hook.steps) == (1, [2])
        session.run("train_op")
        assert session.epoch == 2


class Liar(WithoutLength):
    """Says that it has another number of elements than it has."""

    def __init__(self, says):
        self.says = says

    def __len__(self):
        return self.says


@pytest.mark.parametrize(("says", "bound"), [(LENGTH - 1, "at least 4"), (LENGTH + 1, "no more")])
def test_a_wrong_length_is_told_once_and_the_loop_draws_all_elements(says, bound, caplog):
    session = opened([Epochs()], Liar(says), epochs=3)
    with session:
        while True:
            session.run("train_op")
    assert session.global_step == 3 * LENGTH
    (told,) = [it for it in caplog.messages if "len()" in it]
    assert f"'data' has {bound}" in told
    assert f"its len() is {says}" in told


@pytest.mark.parametrize("source", SOURCES)
def test_a_right_length_is_not_doubted(source, run, tmp_path):
    case = {"source": source, "triggers": [], "folder": tmp_path / "run"}
    for last in (1, 6, 100):
        assert "len()" not in run(**case, notes=tmp_path / "notes", last=last)


@pytest.mark.parametrize("size", [1, 3])
def test_another_batch_size_after_a_resume(size, tmp_path):
    """What is left of the interrupted epoch is by number of elements; its end is one end."""
    examples, hook = list(range(6)), Epochs()
    batches = [examples[i : i + 2] for i in range(0, 6, 2)]
    session = opened([hook], batches, epochs=3, folder=tmp_path)
    with session:
        for _ in range(4):  # one epoch, and a third of the next
            session.run("train_op")
    assert hook.steps == [3]
    batches = [examples[i : i + size] for i in range(0, 6, size)]
    hook = Epochs()
    session = opened([hook], batches, epochs=3, folder=tmp_path)
    with session:
        assert session.epoch == 2
        while not session.should_stop():
            session.run("train_op")
    length = 6 // size
    assert hook.steps == [4 + length - 1, 4 + length - 1 + length]


def generated(size=1):
    """A function that returns an iterable: a generator, of eight examples, ``size`` by ``size``."""

    def elements():
        yield from range(0, 8, size)

    return elements


class Eight:
    """The same as an iterable without a length."""

    def __init__(self, size=1):
        self.size = size

    def __iter__(self):
        return generated(self.size)()


@pytest.mark.parametrize("make", [generated, Eight])
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (2, 4)])
def test_another_batch_size_after_a_whole_epoch_of_unknown_length(make, sizes, tmp_path):
    ends = []
    for size, epochs in zip(sizes, (1, 2), strict=True):
        hooks = [hook := Epochs(), rh.StopAtStepHook(num_steps=epochs * 8 // size)]
        with opened(hooks, make(size), epochs=5, folder=tmp_path) as session:
            while not session.should_stop():
                session.run("train_op")
        assert session.stop_reason.startswith("StopAtStepHook")
        ends += hook.steps
    first, second = (8 // size for size in sizes)
    assert ends == [first, first + second, first + 2 * second]


class EightWithPosition(Eight):
    """The same, and it knows its position."""

    def __init__(self):
        super().__init__()
        self.position = 0

    def __iter__(self):
        while self.position < 8:
            self.position += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


@pytest.mark.parametrize("make", [generated, Eight, EightWithPosition, lambda: list(range(8))])
@pytest.mark.parametrize("stop_at", [7, 8, 9])
def test_a_hook_that_is_new_at_a_resume_acts_at_the_next_end(make, stop_at, tmp_path):
    with opened([rh.StopAtStepHook(stop_at)], make(), epochs=3, folder=tmp_path) as session:
        while not session.should_stop():
            session.run("train_op")
    with opened([hook := Epochs()], make(), epochs=3, folder=tmp_path) as session:
        while not session.should_stop():
            session.run("train_op")
    assert hook.steps == ([8, 16, 24] if stop_at == 7 else [16, 24])


@pytest.mark.parametrize("data", [None, lambda step: iter([1]), iter([1])])
def test_without_epochs_the_error_names_the_hook_and_what_to_give(data):
    hook = rh.CallHook(print, trigger=rh.Trigger(every_epochs=1), hook_name="my_call")
    with pytest.raises(ValueError, match="steps_per_epoch") as caught:
        opened([hook], data, epochs=1)
    assert "CallHook" in str(caught.value) or "my_call" in str(caught.value.__notes__)


def test_a_part_of_an_epoch_of_unknown_length_names_the_hook():
    hook = rh.CallHook(print, trigger=rh.Trigger(every_epochs=0.5), hook_name="my_call")
    with pytest.raises(ValueError, match="0.5 epochs.*no known length.*steps_per_epoch") as caught:
        opened([hook], WithoutLength())
    assert any("my_call" in note for note in caught.value.__notes__)


def test_nothing_is_drawn_ahead_where_no_hook_goes_by_epochs():
    drawn = []

    class Draws(WithoutLength):
        def __iter__(self):
            for batch in super().__iter__():
                drawn.append(batch)
                yield batch

    session = opened([], Draws(), epochs=2)
    with session:
        for runs in range(1, LENGTH + 1):
            session.run("train_op")
            assert len(drawn) == runs


def test_epoch_can_be_fetched_by_name_in_any_run():
    session = opened([], [1, 2], epochs=2)
    with session:
        assert session.epoch == 0
        found = [int(session.run(["train_op", "epoch"])[1]) for _ in range(4)]
    assert found == [1, 1, 2, 2]
