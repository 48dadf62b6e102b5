"""Arrays that span processes of jax.distributed: saved, resumed, and read on other meshes."""

import json
import socket
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from runhooks.checkpoint import read_checkpoint
from runhooks.checkpoint.format import read_manifest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("sharded_jax_program.py")


class Processes:
    """Runs the program in a number of processes, of four devices together."""

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder

    def run(self, size, *tasks):
        logs = [self.folder / f"log-{size}-{rank}" for rank in range(size)]
        with socket.socket(socket.AF_INET6) as holder:
            # A port that only a server which shares it, as that of jax does, can take.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(("::", 0))
            words = [str(size), str(holder.getsockname()[1]), str(self.folder), *tasks]
            started = [
                self.launcher.start(log, PROGRAM, str(rank), *words)
                for rank, log in enumerate(logs)
            ]
            ended = [self.launcher.wait(number) for number in started]
        assert ended == [0] * size, "\n".join(log.read_text() for log in logs)
        results = [self.folder / f"results-{size}-{rank}.json" for rank in range(size)]
        return [json.loads(file.read_text()) for file in results]


@pytest.fixture(scope="module")
def processes(jax_launcher, tmp_path_factory):
    return Processes(jax_launcher, tmp_path_factory.mktemp("jax"))


@pytest.fixture(scope="module")
def first(processes):
    return processes.run(2, "exact:both", "train:both:0:4")


def test_a_resumed_training_ends_with_the_same_bits(first):
    for rank, found in enumerate(first):
        result = found["exact:both"]
        assert (result["same"], result["differing"]) == (True, [])
        assert result["own"] == [rank] * 3  # which is no array of all processes
        assert result["table"] == (4 << 17) - 1


def test_each_process_writes_what_it_is_the_first_to_hold(processes, first):
    path = processes.folder / "exact-both-2" / "model.ckpt-4"
    written = [
        sum(
            array.nbytes
            for name, array in safetensors.numpy.load_file(file).items()
            if name != "blocks"
        )
        for file in path.glob("attempt-*")
    ]
    half = 8 * 12 * 4 // 2 + 4 * 8 // 2  # of the weights and the keys
    replicated = 12 * 4 + 8  # the bias and the step
    own = 12
    table = 4 << 19  # which both hold, and each writes a half of
    assert min(written) > table // 2
    assert 2 * (half + own) + replicated + table == sum(written)
    assert read_checkpoint(path).arrays["state/w"].shape == (8, 12)


def test_meshes_of_other_shapes_and_numbers_of_processes_go_on(processes, first):
    stages = [first[0]["train:both:0:4"]]
    (alone,) = processes.run(1, "train:data:4:6")
    stages.append(alone["train:data:4:6"])
    last = processes.run(2, "train:model:6:8")
    stages.append(last[0]["train:model:6:8"])
    assert [read_manifest(processes.folder / f"model.ckpt-{at}").ranks for at in (4, 6, 8)] == [
        2,
        1,
        2,
    ]
    losses = [loss for stage in stages for loss in stage["losses"]]
    np.testing.assert_allclose(losses, first[0]["exact:both"]["losses"], rtol=1e-5)
    assert [it["train:model:6:8"]["own"] for it in last] == [[0] * 3] * 2  # the chief's
