"""``rh.inputs(..., epochs=...)``: how often a source is gone through, across processes too."""

from itertools import chain

import pytest

import runhooks as rh
from tests.graph.sources import Iterated, Loader, train


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
