"""Inputs in a random order: a run is given what the program's own loop is, stopped or not."""

import functools
import random
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from tests.graph.sources import train

# Torchdata calls what torch no longer wants to be called.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

SIZE, BATCH, EPOCHS = 12, 3, 4
STEPS = EPOCHS * SIZE // BATCH

# Run by itself: worker processes are forked, which a process with JAX in it should not be.
WITH_WORKERS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.graph import test_random_order
import torch.utils.data
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.2  # so long an idle worker takes to end
names = "with_workers", "with_lasting_workers", "stateful_with_workers", "shuffled_by_workers"
for name in names:
    make_loader = getattr(test_random_order, name)
    folder = Path(sys.argv[2]) / name
    test_random_order.check(make_loader, 5, folder, epochs=2, last=7)
# What lasting workers draw comes again in the first epoch; later a line says that it does not.
lasting = lambda: test_random_order.shuffled_by_workers(persistent_workers=True)
test_random_order.check(lasting, 2, folder / "a", epochs=2, last=7)
for last in (5, 7):
    print(last, file=sys.stderr)
    test_random_order.trained(lasting, last, folder / "b", epochs=2)
"""


class Shuffled:
    """Gives numbers in another order each time, which ``shuffle`` makes."""

    def __init__(self, shuffle, **attributes):
        self.shuffle = shuffle
        vars(self).update(attributes)

    def __iter__(self):
        order = list(range(SIZE))
        self.shuffle(order)
        for begin in range(0, SIZE, BATCH):
            yield order[begin : begin + BATCH]


class Drawn:
    """Draws each of its numbers when it is asked for it."""

    def __iter__(self):
        return (np.random.randint(1000, size=BATCH).tolist() for _ in range(SIZE // BATCH))


def shuffled_by_numpy():
    np.random.seed(1)
    return Shuffled(lambda order: np.random.shuffle(order))


def shuffled_by_python():
    random.seed(1)
    return Shuffled(lambda order: random.shuffle(order))


def shuffled_by_its_own_generator():
    rng = np.random.default_rng(1)
    return Shuffled(rng.shuffle, rng=rng)


def shuffled_by_a_random_of_its_own():
    rng = random.Random(1)
    return Shuffled(rng.shuffle, rng=rng)


def drawn_one_by_one():
    np.random.seed(1)
    return Drawn()


def shuffles(rng):
    order = list(range(SIZE))
    rng.shuffle(order)
    yield from (order[begin : begin + BATCH] for begin in range(0, SIZE, BATCH))


def function_of_a_generator_around_it():
    rng = np.random.default_rng(1)
    return lambda: shuffles(rng)


def function_with_a_generator_bound():
    return functools.partial(shuffles, random.Random(1))


def function_with_a_generator_named():
    return functools.partial(lambda *, rng: shuffles(rng), rng=np.random.RandomState(1))


def function_of_the_module():
    global of_the_module
    of_the_module = np.random.default_rng(1)
    return lambda: from_the_module()


def from_the_module():
    return shuffles(of_the_module)


def method_of_what_has_a_generator():
    return shuffled_by_its_own_generator().__iter__


def function_of_what_has_a_generator():
    shuffled = shuffled_by_its_own_generator()
    return lambda: iter(shuffled)


def function_of_two_generators_of_one_name():
    def inner():
        rng = np.random.default_rng(1)
        return lambda: shuffles(rng)

    first, rng = inner(), np.random.default_rng(2)
    return lambda: ([*a, *b] for a, b in zip(first(), shuffles(rng), strict=True))


def as_array(examples):
    return np.array([float(example) for example in examples], np.float32)


def loader(data=None, **kwargs):
    import torch

    torch.manual_seed(0)
    data = torch.arange(SIZE) if data is None else data
    given = {"batch_size": BATCH, "shuffle": True, "collate_fn": as_array, **kwargs}
    return torch.utils.data.DataLoader(data, **given)


def loader_with_a_generator():
    import torch

    return loader(generator=torch.Generator().manual_seed(7))


def stateful_loader(data=None, **kwargs):
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(0)
    data = torch.arange(SIZE) if data is None else data
    return StatefulDataLoader(data, BATCH, shuffle=True, collate_fn=as_array, **kwargs)


def stateful_loader_with_a_generator():
    import torch

    return stateful_loader(generator=torch.Generator().manual_seed(7))


def stateful_noise():
    import torch

    class Noise(torch.utils.data.Dataset):
        def __len__(self):
            return SIZE

        def __getitem__(self, index):
            return index + 0.5 * torch.rand(())

    return stateful_loader(Noise())


def grain_loader():
    import grain.python as grain

    sampler = grain.IndexSampler(SIZE, seed=3, shuffle=True, num_epochs=EPOCHS)
    batched = [grain.Batch(BATCH)]
    return grain.DataLoader(data_source=range(SIZE), sampler=sampler, operations=batched)


def grain_dataset():
    import grain.python as grain

    return grain.MapDataset.range(SIZE).shuffle(seed=3).repeat(EPOCHS).batch(BATCH)


def grain_iterator():
    return iter(grain_dataset().to_iter_dataset())


def loader_with_a_sampler():
    import torch

    generator = torch.Generator().manual_seed(7)
    sampler = torch.utils.data.RandomSampler(range(SIZE), generator=generator)
    return loader(shuffle=False, sampler=sampler)


def loader_with_a_batch_sampler():
    from torch.utils.data import BatchSampler, WeightedRandomSampler

    sampler = BatchSampler(WeightedRandomSampler([1.0] * SIZE, SIZE), BATCH, drop_last=True)
    return loader(batch_size=1, shuffle=False, batch_sampler=sampler)


def with_workers():
    return loader(num_workers=1)


def with_lasting_workers():
    return loader(num_workers=1, persistent_workers=True)


def shuffled_by_workers(**kwargs):
    import torch

    class InWorkers(torch.utils.data.IterableDataset):
        def __iter__(self):
            left = list(range(SIZE))
            while left:
                yield left.pop(int(torch.randint(len(left), ())))

    return loader(InWorkers(), shuffle=False, num_workers=1, **kwargs)


def stateful_with_workers():
    return stateful_loader(num_workers=2)


def shuffled_by_a_generator_it_does_not_show():
    rng = np.random.default_rng(1)
    return Shuffled(lambda order: rng.shuffle(order))


def generator_of_elements():
    np.random.seed(1)
    return (np.random.randint(1000, size=BATCH).tolist() for _ in range(STEPS))


def function_of_the_step():
    np.random.seed(1)
    return lambda step: Drawn()


def counted_by_itself():
    class Counting:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter([[self.passes * 10 + i] * BATCH for i in range(SIZE // BATCH)])

    return Counting()


def shuffled_twice():
    """Two inputs that draw from one generator."""
    np.random.seed(1)
    return tuple(Shuffled(lambda order: np.random.shuffle(order)) for _ in range(2))


SOURCES = [
    *(shuffled_by_numpy, shuffled_by_python, shuffled_by_its_own_generator),
    *(shuffled_by_a_random_of_its_own, drawn_one_by_one),
    *(loader, loader_with_a_generator, loader_with_a_sampler, loader_with_a_batch_sampler),
    *(stateful_loader_with_a_generator, stateful_noise),
]
FUNCTIONS = [
    *(function_of_a_generator_around_it, function_with_a_generator_bound),
    *(function_with_a_generator_named, function_of_the_module, method_of_what_has_a_generator),
    *(function_of_what_has_a_generator, function_of_two_generators_of_one_name),
]
OF_THEIR_OWN_EPOCHS = [grain_loader, grain_dataset, grain_iterator]


def trained(make_source, last, directory, epochs=EPOCHS):
    """What a run from its start, or from its checkpoint, to the step ``last`` is given."""
    return train(make_source(), epochs, last=last, checkpoint_dir=directory)


def check(make_source, stop, tmp_path, epochs=EPOCHS, last=STEPS - 1):
    """Compare an undisturbed run with one that was stopped at the step ``stop``, and again."""
    undisturbed = trained(make_source, last, tmp_path / "undisturbed", epochs)
    assert undisturbed[:4] != undisturbed[4:8]
    stops = [stop, stop + 1, last]
    stopped = [trained(make_source, it, tmp_path / "stopped", epochs) for it in stops]
    assert list(chain.from_iterable(stopped)) == undisturbed


@pytest.mark.parametrize("stop", [3, 6])
@pytest.mark.parametrize("make_source", [*SOURCES, shuffled_twice])
def test_resumed_run_is_given_what_an_undisturbed_one_is(make_source, stop, tmp_path):
    check(make_source, stop, tmp_path)


@pytest.mark.parametrize("make_source", FUNCTIONS)
def test_resumed_run_of_a_function_finds_the_generators_that_it_uses(make_source, tmp_path):
    check(make_source, 6, tmp_path)


@pytest.mark.parametrize("make_source", OF_THEIR_OWN_EPOCHS)
def test_resumed_run_of_a_loader_that_repeats_itself_is_given_the_same(make_source, tmp_path):
    check(make_source, 6, tmp_path, epochs=1)


# A StatefulDataLoader that is given the state of its end draws once more from its generator.
@pytest.mark.parametrize("make_source", SOURCES[:-2])
def test_finished_run_that_is_given_more_epochs_shuffles_them_as_an_undisturbed_one(
    make_source, tmp_path
):
    undisturbed = trained(make_source, STEPS, tmp_path / "undisturbed", EPOCHS)
    given = [1, EPOCHS - 1, EPOCHS - 1, EPOCHS]
    extended = [trained(make_source, STEPS, tmp_path / "extended", epochs) for epochs in given]
    assert list(chain.from_iterable(extended)) == undisturbed


def test_loader_without_end_goes_on_in_its_epoch(tmp_path):
    check(loader, 6, tmp_path, epochs=None)


@pytest.mark.slow
def test_workers_of_a_loader_go_on_in_their_epoch(torch_launcher, tmp_path):
    here = Path(__file__).parents[2]
    status, text = torch_launcher.run(tmp_path, WITH_WORKERS, here, tmp_path)
    assert status == 0, text
    said = [it for it in text.splitlines() if "in another order" in it or it in "57"]
    assert said[:-1] == ["5", "7"]
    assert "Leave persistent_workers out" in said[-1]


def step_of_its_own(seen):
    """A step that shows what it is given, and draws random numbers as steps do."""

    def step(weights, batch):
        seen.append(np.asarray(batch).tolist())
        return weights + np.random.random() + random.random()

    return step


def by_numpy(seen, source, epochs):
    step = step_of_its_own(seen)
    return rh.graph(step, weights=lambda: np.random.normal(size=2), data=source, epochs=epochs)


def by_jax(seen, source, epochs):
    import jax

    step = step_of_its_own(seen)

    def host_step(weights, batch):
        shape = jax.ShapeDtypeStruct(weights.shape, weights.dtype)
        return jax.experimental.io_callback(
            lambda *args: np.asarray(step(*args), np.float32), shape, weights, batch, ordered=True
        )

    def weights():
        return np.random.normal(size=2).astype(np.float32)

    return rh.jax.graph(host_step, weights=weights, data=source, epochs=epochs)


def by_torch(seen, source, epochs):
    step = step_of_its_own(seen)
    weights = np.random.normal(size=2)

    def torch_step(batch):
        weights[:] = step(weights, batch)

    return rh.torch.graph(torch_step, data=source, epochs=epochs)


def seed():
    import jax  # noqa: F401 - which draws from NumPy's generator when it is imported
    import torch

    random.seed(2)
    np.random.seed(2)
    torch.manual_seed(2)


def drawn_next():
    """What the generators that programs share give next."""
    import torch

    return [random.random(), np.random.random(), float(torch.rand(()))]


@pytest.mark.filterwarnings("ignore:the graph has no objects")
@pytest.mark.parametrize("make_graph", [by_numpy, by_jax, by_torch])
@pytest.mark.parametrize(
    "make_source",
    [
        *(*SOURCES, function_of_a_generator_around_it),
        *(shuffled_by_a_generator_it_does_not_show, generator_of_elements),
        *(function_of_the_step, counted_by_itself),
    ],
)
def test_every_epoch_is_that_of_the_programs_own_loop(make_source, make_graph, tmp_path):
    seed()
    own, source = [], make_source()
    is_once = make_source in (generator_of_elements, function_of_the_step)
    epochs = 1 if is_once else 3
    step, weights = step_of_its_own(own), np.random.normal(size=2)
    for _ in range(epochs):
        made = source if not callable(source) else source(0) if is_once else source()
        for batch in made:
            weights = step(weights, batch)
    after = drawn_next()

    seed()
    seen = []
    graph = make_graph(seen, make_source(), epochs)
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=2, save_summaries_steps=2
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")
    assert seen == own
    assert drawn_next() == after


def test_list_adds_no_random_states_to_a_checkpoint():
    np.random.seed(1)
    graph = rh.Graph()
    with graph.as_default():
        number = rh.inputs([1, 2, 3], epochs=2)
        session = rh.Session(graph)
        session.run(number)
        np.random.normal()
        assert session.snapshot().states["inputs/inputs"] == {"drawn": 1, "length": 3}
