"""How often a source is gone through, when an epoch ends, and what acts there: on resume too."""

from contextlib import suppress
from itertools import chain

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runhooks as rh
from tests.graph.sources import Iterated, Loader, train

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.mark.parametrize("make", [Loader, lambda: [1, 2, 3]])
def test_source_is_gone_through_so_often(make, engine):
    assert len(train(make(), 1, engine)) == 3
    assert len(train(make(), 3, engine)) == 9
    assert len(train(make(), None, engine, last=11)) == 11


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("cadence", [1, 2, 3, 100])
def test_finished_run_has_nothing_to_do_whatever_the_cadence(epochs, cadence, engine, tmp_path):
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": cadence}
    assert len(train(Loader(), epochs, engine, **arguments)) == 3 * epochs
    for _ in range(2):
        assert train(Loader(), epochs, engine, **arguments) == []


@pytest.mark.parametrize("cadence", [2, 100])
@pytest.mark.parametrize("stops", [(1,), (2, 3), (3, 6), (4, 5, 8)])
def test_stopped_run_goes_on_where_it_was(stops, cadence, tmp_path):
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": cadence}
    drawn = []
    for last in (*stops, 100):
        drawn += train(Loader(), 3, last=last, **arguments)
    assert drawn == train(Loader(), 3)


@pytest.mark.parametrize("given", [(1, 3), (2, 3), (2, 2, 4), (1, 2, 3, 4), (3, 2, 4)])
@pytest.mark.parametrize("make", [Loader, lambda: Iterated(3), lambda: [1, 2, 3]])
def test_finished_run_may_be_given_more_epochs(make, given, tmp_path):
    drawn = [train(make(), epochs, checkpoint_dir=tmp_path) for epochs in given]
    assert list(chain.from_iterable(drawn)) == train(make(), given[-1])


def test_finished_run_may_be_given_epochs_without_end(tmp_path):
    assert train([1, 2, 3], 2, checkpoint_dir=tmp_path) == [1, 2, 3, 1, 2, 3]
    assert train([1, 2, 3], None, checkpoint_dir=tmp_path, last=10) == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("source", "epochs"),
    [([], None), ([], 1), (iter([]), 1), (lambda step: [], 1)],
    ids=["for ever", "list", "iterator", "function"],
)
def test_nothing_comes_to_an_end_with_a_warning(source, epochs, caplog):
    assert train(source, epochs) == []
    assert "the input 'batch' has no elements" in caplog.text


@pytest.mark.parametrize("source", [iter([1]), lambda step: [1]])
def test_what_cannot_be_gone_through_again_is_refused(source):
    with rh.Graph().as_default():
        with pytest.raises(ValueError, match="epochs.*2"):
            rh.inputs(source, epochs=2)
        with pytest.raises(ValueError, match="epochs"):
            rh.inputs([1], epochs=0)


class Sampler:
    """Shuffles by the epoch that it is told, as torch's ``DistributedSampler`` does."""

    def __init__(self):
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([10 * self.epoch, 10 * self.epoch + 1])


class Sampled:
    """A loader of two elements an epoch; ``holder`` is its attribute that has ``set_epoch``."""

    def __init__(self, holder):
        self.inner = Sampler()
        if holder == "batch_sampler.sampler":
            self.batch_sampler = type("BatchSampler", (), {"sampler": self.inner})()
        elif holder:
            setattr(self, holder, self.inner)
        else:
            self.set_epoch = self.inner.set_epoch

    def __iter__(self):
        return iter(self.inner)


@pytest.mark.parametrize("holder", ["", "sampler", "batch_sampler.sampler", "dataset"])
def test_sampler_is_told_the_epoch(holder, tmp_path):
    assert train(Sampled(holder), 3) == [0, 1, 10, 11, 20, 21]
    loader = Sampled(holder)
    assert train(loader, 3, last=2, checkpoint_dir=tmp_path) == [0, 1]
    assert train(loader, 3, checkpoint_dir=tmp_path)[-4:] == [10, 11, 20, 21]
    assert train(Sampled(holder), None, last=5) == [0, 1, 10, 11, 20]


def test_program_that_counts_epochs_itself_is_not_disturbed():
    loader = Sampled("sampler")
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        assert train(loader, 1) == [10 * epoch, 10 * epoch + 1]


def test_distributed_sampler_of_torch_shuffles_each_epoch_anew():
    from torch.utils.data import DataLoader, DistributedSampler

    def epochs():
        sampler = DistributedSampler(range(8), num_replicas=1, rank=0, seed=1)
        drawn = train(DataLoader(range(8), None, sampler=sampler), 2)
        return drawn[:8], drawn[8:]

    first, second = epochs()
    assert first != second
    assert sorted(first) == sorted(second) == list(range(8))
    assert epochs() == (first, second)


# When an epoch ends, and what acts there: each source has five elements an epoch.


class Stream:
    """An iterable that does not say its length."""

    def __iter__(self):
        return iter(np.arange(5, dtype=np.float32))


class Noise:
    """The same, whose elements are drawn from NumPy's global generator."""

    def __iter__(self):
        for _ in range(5):
            yield np.float32(np.random.random())


class Claims(Stream):
    """The same, which says that it has ``length`` elements."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def as_array(elements):
    return np.asarray(elements, np.float32)


def torch_loader():
    from torch.utils.data import DataLoader

    return DataLoader(range(10), 2, shuffle=True, collate_fn=as_array)


def stateful_loader():
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(range(10), 2, shuffle=True, collate_fn=as_array)


SOURCES = {
    "list": lambda: [np.float32(it) for it in range(5)],
    "array": lambda: np.arange(5, dtype=np.float32),
    "torch": torch_loader,
    "stateful": stateful_loader,
    "stream": Stream,
    "noise": Noise,
    "function": lambda: lambda step: iter(np.arange(step, 1000, dtype=np.float32)),
    "fed": lambda: None,
}


def program(source, engine="python", epochs=2):
    """Make the graph, as a process does that has just started; its loss is that of the element."""
    import torch

    torch.manual_seed(4)
    np.random.seed(4)

    def train_step(total, element):
        loss = element.mean()
        return total + loss, {"loss": loss}

    if isinstance(source, str):
        counts = source in {"function", "fed"}
        source = SOURCES[source]()
    else:
        counts = False
    data = {"data": source, "steps_per_epoch": 5} if counts else {"data": source, "epochs": epochs}
    total = torch.zeros(()) if engine == "torch" else np.float32(0)
    return rh.graph(train_step, total=total, engine=engine, **data)


def train_by_epochs(source, *cadences, engine="python", fails_at=None, **arguments):
    """Train for two epochs, or until an error after the step ``fails_at``.

    Returns the calls, (step, epoch, loss), of a hook of each cadence, and the losses of all runs.
    """
    calls, losses = {every: [] for every in cadences}, []

    def noted(every):
        return lambda step, epoch, loss: calls[every].append(
            (int(step) + 1, int(epoch), float(loss))
        )

    fetches = ["global_step", "epoch", "loss"]
    hooks = [
        rh.CallHook(noted(every), fetches, trigger=rh.Trigger(every_epochs=every))
        for every in cadences
    ]
    arguments = {"save_summaries_steps": None, "log_step_count_steps": None, **arguments}
    with suppress(KilledError), program(source, engine).as_default():
        if source in ("function", "fed"):
            hooks.append(rh.StopAtStepHook(last_step=10))
        with rh.MonitoredTrainingSession(hooks=hooks, **arguments) as session:
            while not session.should_stop():
                fed = {"element": np.float32(session.global_step)} if source == "fed" else None
                losses.append(float(session.run(["train_op", "loss"], fed)[1]))
                if session.global_step == fails_at:
                    raise KilledError
    return calls, losses


class KilledError(Exception):
    pass


@pytest.mark.every_engine
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("every", "steps"), [(1, [5, 10]), (2, [10])])
def test_hooks_act_at_the_ends_of_epochs_with_values_of_that_very_run(source, every, steps, engine):
    calls, losses = train_by_epochs(source, every, engine=engine)
    assert len(losses) == 10
    assert calls[every] == [(step, step // 5, losses[step - 1]) for step in steps]


LONG = [it for it in SOURCES if it not in ("stream", "noise")]


@pytest.mark.parametrize("source", LONG)
@pytest.mark.parametrize(("every", "steps"), [(0.5, [3, 5, 8, 10]), (0.2, range(1, 11))])
def test_a_part_of_an_epoch_ends_with_the_element_that_fills_it(source, every, steps):
    calls, losses = train_by_epochs(source, every)
    assert calls[every] == [(step, (step + 4) // 5, losses[step - 1]) for step in steps]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("stops", [range(1, 10), [3, 7, 9]], ids=["at each step", "at some"])
def test_a_run_resumed_in_mid_epoch_goes_on_as_an_undisturbed_one(source, stops, tmp_path):
    cadences = [1, 2, 0.5] if source in LONG else [1, 2]  # no half of an unknown length
    calls, losses = {every: [] for every in cadences}, []
    for step in [*stops, None]:
        arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 1, "fails_at": step}
        more_calls, more_losses = train_by_epochs(source, *cadences, **arguments)
        assert step is None or len(losses + more_losses) == step
        calls = {every: calls[every] + more_calls[every] for every in cadences}
        losses += more_losses
    assert (calls, losses) == train_by_epochs(source, *cadences)


@pytest.mark.parametrize("source", ["torch", "stream", "fed"])
def test_a_run_resumed_from_an_earlier_step_acts_again_at_what_it_repeats(source, tmp_path):
    undisturbed = train_by_epochs(source, 1)
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 4}
    calls, losses = train_by_epochs(source, 1, fails_at=7, **arguments)
    more_calls, more_losses = train_by_epochs(source, 1, **arguments)
    saved = 10 - len(more_losses)
    assert 1 < saved < 7
    assert losses[:saved] + more_losses == undisturbed[1]
    repeated = [it for it in calls[1] if it[0] <= saved] + more_calls[1]
    assert {1: repeated} == undisturbed[0]


class Counting(Stream):
    """Notes how many elements were drawn, and how often it was gone through."""

    def __init__(self):
        self.drawn = self.begun = 0

    def __iter__(self):
        self.begun += 1
        for element in super().__iter__():
            self.drawn += 1
            yield element


class CountingWithLength(Counting):
    def __len__(self):
        return 5


@pytest.mark.parametrize("make", [Counting, CountingWithLength])
@pytest.mark.parametrize("epochs", [1, 2])
def test_the_loop_ends_at_the_last_element_without_another_run(make, epochs):
    source, runs = make(), 0
    with program(source, epochs=epochs).as_default():
        hooks = [rh.CallHook(lambda: None, every_n_epochs=1)]
        with rh.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
                runs += 1
            assert session.stop_reason.endswith(f"'data' are done (epochs={epochs})")
    assert (runs, source.drawn, source.begun) == (5 * epochs, 5 * epochs, epochs)


@pytest.mark.parametrize("source", ["list", "torch", "stream", "stateful"])
def test_a_loop_that_never_asks_ends_well(source):
    calls = []
    with program(source).as_default():
        hooks = [rh.CallHook(lambda: calls.append(1), every_n_epochs=1)]
        with rh.MonitoredSession(hooks=hooks) as session:
            while True:
                session.run("train_op")
    assert session.global_step == 10
    assert calls == [1, 1]


def test_runs_that_draw_without_a_step_move_the_end():
    calls = []
    with program("list").as_default() as graph:
        hook = rh.CallHook(
            lambda *values: calls.append(tuple(map(int, values))),
            ["global_step", "epoch"],
            every_n_epochs=1,
        )
        with rh.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run(graph["element"])
                if not session.should_stop():
                    session.run("train_op")
    assert session.global_step == 5
    assert calls == [(2, 2), (4, 2)]  # the run that ended the first made no step


@pytest.mark.parametrize("length", [3, 4, 6, 9])
def test_a_loader_that_is_wrong_about_its_length_is_gone_through_to_its_end(length):
    source = Claims(length)
    calls, losses = train_by_epochs(source, 1)
    assert losses == [0, 1, 2, 3, 4] * 2
    if length < 5:
        assert [it[:2] for it in calls[1]] == [(length, 1), (5 + length, 2)]
    else:  # the end of the first is found by the run that begins the next
        assert [it[1] for it in calls[1]] == [2]


def test_the_session_knows_its_epoch(tmp_path):
    found = []
    for _ in range(2):
        with program("torch").as_default():
            hooks = [rh.StopAtStepHook(num_steps=7)]
            with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session:
                found.append(session.epoch)
                while not session.should_stop():
                    session.run("train_op")
                    found.append(session.epoch)
    assert found == [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "data", [iter([1, 2]), lambda step: [1, 2], None], ids=["iterator", "function", "fed"]
)
def test_epochs_that_nothing_tells_are_refused_by_the_name_of_the_hook(data):
    graph = rh.graph(lambda total, element: total + element, total=0, data=data)
    hook = rh.CallHook(print, every_n_epochs=1, hook_name="printer")
    with graph.as_default():
        with pytest.raises(ValueError, match=r"goes by epochs.*steps_per_epoch") as caught:
            rh.MonitoredSession(hooks=[hook])
    told = [str(caught.value), *getattr(caught.value, "__notes__", ())]
    assert any("printer" in it for it in told)


def test_a_part_of_an_epoch_of_unknown_length_is_refused():
    with program("stream").as_default():
        hook = rh.CallHook(print, trigger=rh.Trigger(every_epochs=0.5), hook_name="halves")
        with pytest.raises(ValueError, match=r"after 0.5 epochs.*no known length.*steps_per_epoch"):
            with rh.MonitoredSession(hooks=[hook]) as session:
                session.run("train_op")


class Filtered:
    """Data of which epochs have left 2, 0, 2 and 2 elements."""

    def set_epoch(self, epoch):
        self.left = [2, 0, 2, 2][epoch]

    def __iter__(self):
        return iter([np.ones(1)] * self.left)


@pytest.mark.parametrize("hooks", [[], [rh.CallHook(lambda: None, every_n_epochs=1)]])
def test_an_epoch_without_elements_is_passed_over(hooks):
    graph = rh.graph(lambda w, x: w + x[0], w=0.0, data=Filtered(), epochs=4)
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run("train_op")
    assert session.global_step == 6


def in_order(reverse=False):
    return [3, 2, 1] if reverse else [1, 2, 3]


def test_a_function_whose_parameters_have_defaults_is_called_without_arguments(tmp_path):
    stopped = [train(in_order, 2, last=last, checkpoint_dir=tmp_path) for last in (2, 100)]
    assert stopped == [[1, 2], [3, 1, 2, 3]]


@pytest.mark.parametrize(
    "make", [lambda step=0: range(step, 6), lambda global_step=0: range(global_step, 6)]
)
def test_a_function_with_a_default_for_the_step_gets_the_step(make, tmp_path):
    stopped = [train(make, last=last, checkpoint_dir=tmp_path) for last in (2, 100)]
    assert stopped == [[0, 1], [2, 3, 4, 5]]


def test_what_a_hook_adds_to_a_list_at_the_end_of_an_epoch_comes_in_the_next():
    data, drawn = [1, 2, 3], []

    def step(total, element):
        drawn.append(int(element))
        return total + element, {}

    def grow(epoch):
        data.append(10 * int(epoch))

    hook = rh.CallHook(grow, "epoch", every_n_epochs=1)
    with rh.graph(step, total=0, data=data, epochs=3).as_default():
        with rh.MonitoredTrainingSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run("train_op")
    assert drawn == [1, 2, 3, 1, 2, 3, 10, 1, 2, 3, 10, 20]


@pytest.mark.every_engine
def test_a_curve_of_the_epoch_leaves_its_name_to_the_tensor(engine, tmp_path):
    with program("list", engine).as_default():
        rh.summary.scalar("epoch")
        seen = []
        hook = rh.CallHook(lambda epoch: seen.append(int(epoch)), ["epoch"], every_n_steps=1)
        rh.train.train("train_op", tmp_path, hooks=[hook], save_summaries_steps=1)
    assert seen == [1] * 5 + [2] * 5
    points = EventAccumulator(str(tmp_path)).Reload().Scalars("epoch")
    assert [point.value for point in points] == seen
