"""The mean loss of an epoch that was interrupted: ours, and what other libraries tell.

Six batches have the values 0 to 5, which are their losses, too; a training stops after three of
them, and another one resumes. The mean of the epoch is 2.5.
"""

import json
import re
from pathlib import Path

import pytest

import runhooks as rh

PROGRAM = Path(__file__).with_name("epoch_mean_peers.py")
PAGE = Path(__file__).parents[2] / "docs" / "epochs.md"
VALUES = [float(it) for it in range(6)]


def rows():
    """The table on the page: name, version, mean, batches after the resume."""
    table = PAGE.read_text().partition("| resumed with ")[2].partition("\n\n")[0]
    found = [[it.strip() for it in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {name: (version, float(mean), batches) for name, version, mean, batches in found}


def ours(folder, stop):
    """The means at the ends of epochs, and the batches of the training."""
    import torch
    from torch.utils.data import DataLoader

    found, trained = [], []

    def step(batch):
        trained.append(float(batch))
        return {"loss": batch.mean()}

    model = torch.nn.Linear(1, 1)
    graph = rh.torch.graph(step, ["loss"], data=DataLoader(VALUES), model=model)
    with graph.as_default():
        mean = rh.epoch_mean("loss")
        hooks = [
            rh.CallHook(lambda it: found.append(float(it)), [mean], every_n_epochs=1),
            rh.StopAtStepHook(last_step=stop),
        ]
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    return found, trained


@pytest.fixture(scope="module")
def peers(torch_launcher, tmp_path_factory):
    """What the other libraries tell, by name."""
    folder = tmp_path_factory.mktemp("peers")
    log = folder / "log"
    ended = torch_launcher.wait(torch_launcher.start(log, PROGRAM, folder))
    assert ended == 0, log.read_text()
    return json.loads(log.read_text().splitlines()[-1])


def test_ours_is_the_mean_of_the_whole_epoch(tmp_path):
    assert ours(tmp_path, 3) == ([], [0.0, 1.0, 2.0])
    assert ours(tmp_path, 6) == ([2.5], [3.0, 4.0, 5.0])
    _, mean, batches = rows()["runhooks"]
    assert (mean, batches) == (2.5, "3, 4, 5")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in rows() if name != "runhooks"])
def test_the_page_says_what_others_tell(name, peers):
    """Should a later version do otherwise, this fails: then correct the page."""
    version, mean, batches = rows()[name]
    found = peers[name]
    if numbers(found["version"]) < numbers(version):
        pytest.skip(f"the page is about {version}, and {found['version']} is installed")
    before, after = found["batches"]
    assert before == [0, 1, 2]
    assert (found["mean"], ", ".join(f"{it:.0f}" for it in after)) == (mean, batches)


def numbers(version):
    return [int(it) for it in re.findall(r"\d+", version)]
