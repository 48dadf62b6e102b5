"""Checkpoints of DDP and FSDP2: by real ranks, on gloo, and in turn by other numbers of them."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import runhooks as rh
from runhooks.checkpoint import checkpoints, read_checkpoint
from runhooks.checkpoint.format import StoredCheckpoint, read_manifest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("sharded_program.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "fsdp_torch.py"


class Ranks:
    """Runs the program on a number of ranks; what each found, by task."""

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder

    def run(self, size, *tasks, killed=()):
        for old in self.folder.glob(f"port-{size}"):
            old.unlink()
        self.start(PROGRAM, size, *tasks, killed=killed)
        return [
            json.loads((self.folder / f"results-{size}-{rank}.json").read_text())
            for rank in range(size)
            if rank not in killed
        ]

    def start(self, program, size, *words, killed=()):
        """Run ``program`` on ``size`` ranks to its end; what each has written to its log."""
        logs = [self.folder / f"log-{size}-{rank}" for rank in range(size)]
        started = [
            self.launcher.start(log, program, str(rank), str(size), str(self.folder), *words)
            for rank, log in enumerate(logs)
        ]
        ended = [self.launcher.wait(number) for number in started]
        texts = [log.read_text() for log in logs]
        assert ended == [-9 if rank in killed else 0 for rank in range(size)], "\n".join(texts)
        return texts


@pytest.fixture(scope="module")
def ranks(torch_launcher, tmp_path_factory):
    return Ranks(torch_launcher, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def first(ranks):
    """What two ranks come to first; they have saved step 8 of a training with FSDP2."""
    more = (
        "pending:ddp",
        "pending:fsdp",
        "unexchanged",
        "averages",
        "epochs:0:4",
        "epochs:0:6",
        "counted:0:4",
        "norms",
    )
    return ranks.run(2, "exact:ddp", "exact:fsdp", "train:ddp:0:16", "train:fsdp:0:8", *more)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_resumed_training_ends_with_the_same_bits(first, kind):
    """Its random states, loaders and statistics of batches are of each rank its own."""
    for rank, found in enumerate(first):
        result = found[f"exact:{kind}"]
        assert result["differing"] == [], rank
        assert result["losses"], rank
        assert (result["names"], result["step"]) == (True, 16)
    assert first[0]["exact:ddp"]["drawn"] != first[1]["exact:ddp"]["drawn"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_gradients_that_are_not_applied_yet_are_of_each_rank_its_own(first, kind):
    for found in first:
        assert found[f"pending:{kind}"]["same"] == [True] * 4


def test_gradients_that_fsdp_has_not_exchanged_are_warned_of_once(first):
    for found in first:
        (said,) = found["unexchanged"]["said"]
        assert "without the gradients of 'model' that FSDP has not exchanged" in said
        assert found["unexchanged"]["counts"] == [1] * 6


def test_averages_of_sharded_parameters_and_of_buffers_are_those_of_the_whole(first):
    for found in first:
        assert {"0.weight", "1.running_mean"} < found["averages"].keys()
        assert all(found["averages"].values())


def test_norms_of_sharded_gradients_are_those_of_the_whole(first):
    for found in first:
        whole, fsdp = found["norms"]["whole"], found["norms"]["fsdp"]
        assert fsdp["fetched"] == pytest.approx(whole["fetched"])
    whole, fsdp = (first[0]["norms"][kind]["written"] for kind in ("whole", "fsdp"))
    assert fsdp.keys() == {"gradient_norm", "gradient_norm/0", "gradient_norm/2"}
    for tag, values in whole.items():
        assert fsdp[tag] == pytest.approx(values)
    assert fsdp["gradient_norm"] == pytest.approx(first[0]["norms"]["fsdp"]["fetched"])


def test_the_mean_of_an_epoch_is_that_of_all_ranks(first):
    for found in first:
        drawn, means = found["epochs:0:6"]
        assert len(drawn) == 12
        assert means[2::3] == [5.5, 5.5]
        assert found["counted:0:4"] == np.mean([0, 1, 2, 3, 10, 11, 12, 13])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_what_both_ranks_hold_is_written_once(first, kind):
    values = 3 * 4 * (6 * 7 + 7 + 7 * 3 + 14)  # parameters, and two states of each
    both = 2 * (5056 + 300)  # random states and statistics of the batches, of each rank
    written = first[0][f"exact:{kind}"]["written"]
    assert values + 2 * 5056 < written <= values + both


def test_the_arrays_of_a_checkpoint_are_read_on_one_machine(ranks, first):
    path = ranks.folder / "model.ckpt-8"
    assert read_manifest(path).ranks == 2
    assert "objects/model" in StoredCheckpoint(path).check()
    arrays = read_checkpoint(path).arrays
    for name, values in first[0]["train:fsdp:0:8"]["ended"].items():
        np.testing.assert_array_equal(arrays[f"model/{name}"], np.float32(values))
    rh.export(path, ranks.folder / "model.safetensors", "model")
    exported = safetensors.torch.load_file(ranks.folder / "model.safetensors")
    assert torch.equal(exported["0.weight"], torch.tensor(arrays["model/0.weight"]))
    assert arrays["optimizer/state/0/exp_avg"].shape == (7, 6)
    rows = [
        safetensors.numpy.load_file(next(path.glob(f"*-{rank}.safetensors"))) for rank in range(2)
    ]
    np.testing.assert_array_equal(
        np.concatenate([rows[0]["model/0.weight@0,0"], rows[1]["model/0.weight@4,0"]]),
        arrays["model/0.weight"],
    )


def test_any_number_of_ranks_goes_on_and_a_rank_that_is_killed_in_a_save_leaves_none(ranks, first):
    stages = [first[0]["train:fsdp:0:8"]]
    (alone,) = ranks.run(1, "train:plain:8:12", "epochs:4:99", "epochs:6:99", "counted:4:1")
    stages.append(alone["train:plain:8:12"])
    # The second of 3 epochs begins anew; or it was just done, and the third is left.
    for task, epochs in {"epochs:4:99": 2, "epochs:6:99": 1}.items():
        drawn, means = alone[task]
        assert len(drawn) == 12 * epochs
        assert {drawn.count(float(it)) for it in range(12)} == {epochs}
        assert means[5::6] == [5.5] * epochs
    # What two ranks have added up counts, where nothing of the epoch is made again.
    assert alone["counted:4:1"] == np.mean([0, 1, 2, 3, 10, 11, 12, 13, 4])
    anew = "begins its epoch 2 anew: 2 ranks have saved the checkpoint of step 4, and there are 1"
    assert anew in (ranks.folder / "log-1-0").read_text()
    assert read_manifest(ranks.folder / "model.ckpt-12").ranks == 1
    pending = "take_pending:ddp", "take_pending:fsdp"
    four = ranks.run(4, "train:fsdp:12:14", "mesh", *pending)
    stages.append(four[0]["train:fsdp:12:14"])
    assert len({it["train:fsdp:12:14"]["drawn"] for it in four}) == 4
    for it in four:
        assert (it["mesh"]["same"], it["mesh"]["placements"]) == ([True] * 5, True)
    for it in four:
        assert "2 ranks have accumulated different gradients" in it["take_pending:ddp"]
        assert it["take_pending:fsdp"] == "restored"
    assert sum(it["mesh"]["written"] for it in four) == 5 * 35
    (survivor,) = ranks.run(2, "train:ddp:14:16", "die", killed=[1])
    stages.append(survivor["train:ddp:14:16"])

    for before, after in itertools.pairwise(stages):
        assert after["begun"] == before["ended"]
    losses = [loss for stage in stages for loss in stage["losses"]]
    reference = first[0]["train:ddp:0:16"]
    np.testing.assert_allclose(losses, reference["losses"], rtol=1e-4)
    for name, values in stages[-1]["ended"].items():
        np.testing.assert_allclose(values, reference["ended"][name], rtol=1e-2, atol=1e-4)

    assert "rank 1 has not come" in survivor["die"]["error"]
    assert survivor["die"]["left"] == []
    assert checkpoints(ranks.folder)[-1] == str(ranks.folder / "model.ckpt-16")


def test_the_example_trains_with_fsdp_and_resumes(ranks):
    directory = ranks.folder / "example"
    words = [str(EXAMPLE), "--dir", str(directory), "--save-steps", "20", "--steps"]
    ranks.start(PROGRAM.with_name("example_rank.py"), 2, *words, "20")
    for file in [*ranks.folder.glob("left-*"), ranks.folder / "example-port"]:
        file.unlink()
    chief, other = ranks.start(PROGRAM.with_name("example_rank.py"), 2, *words, "40")
    assert f"resumed from step 20: {directory}/model.ckpt-20" in chief
    assert float(chief.rpartition("step 40: ")[2].partition("%")[0]) > 50
    assert "of the test digits" not in other
    steps = [read_manifest(Path(path)).global_step for path in checkpoints(directory)]
    assert steps == [0, 20, 40]
    assert {read_manifest(Path(path)).ranks for path in checkpoints(directory)} == {2}
    assert len(list(directory.glob("events.*"))) == 2  # of the chief, in each run
