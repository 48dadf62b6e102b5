"""Hyperparameters, embeddings and graphs: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from PIL import Image
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks import events
from runhooks.tensorboard import SummaryWriter
from tests.tensorboard.conftest import events_in


def test_hparams_have_a_run_of_their_own(tmp_path):
    hparams = {"lr": 0.1, "layers": 3, "x": torch.tensor([0.5]), "deep": True, "f": torch.relu}
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(hparams, {"loss": 1, "accuracy": torch.tensor(0.5)}, name="named")
        writer.add_hparams({"lr": 0.1}, {"loss": 1})
    runs = events.read(tmp_path)
    other, named = sorted(runs.keys() - {"."})
    assert (float(other) > 0, named) == (True, "named")  # the time
    expected = {"lr": 0.1, "layers": 3.0, "x": 0.5, "deep": True, "f": "relu"}
    assert runs["named"].hparams == expected
    assert [column.values.tolist() for column in runs["named"].scalars.values()] == [[0.5], [1]]


def test_domains_are_those_of_torch(tmp_path):
    hparams = {"lr": 0.5, "layers": 3, "name": "a"}
    domains = {"layers": [1, 2, 3], "name": ["a", "b"]}
    for make, folder in ((TorchWriter, "theirs"), (SummaryWriter, "ours")):
        with make(str(tmp_path / folder)) as writer:
            writer.add_hparams(hparams, {"loss": 1}, domains, "run")
    theirs, ours = (
        HParamsPluginData.FromString(
            events_in(tmp_path / folder)["run"][0].summary.value[0].metadata.plugin_data.content
        ).experiment
        for folder in ("theirs", "ours")
    )
    assert (ours.hparam_infos, ours.metric_infos) == (theirs.hparam_infos, theirs.metric_infos)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([("lr", 1)], {}), TypeError),
        (({"lr": 1}, [1]), TypeError),
        (({"lr": 1}, {"a": 1}, [1]), TypeError),
        (({"lr": 1}, {"a": 1}, {"other": [1]}), ValueError),
        (({"lr": 1}, {"a": 1}, {"lr": 3}), TypeError),
    ],
)
def test_other_hparams_are_refused(arguments, error, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(error):
        writer.add_hparams(*arguments)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


POINTS = torch.tensor([[1.0, 2.5, 0.1], [1e-7, 1e30, -3], [0, 1, 2], [3, 4, 5], [6, 7, 8]])
PICTURES = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
ROWS = [("a", 1), ("b", 2), ("ü", 3), ("d", 4), ("e", 5)]
EMBEDDINGS = {
    "points": {},
    "labels": {"metadata": ["a", 2, "ü", None, "e f"], "global_step": 2},
    "several labels": {"metadata": ROWS, "metadata_header": ["digit", "dataset"]},
    "rows without a header": {"metadata": ROWS},
    "pictures": {"label_img": PICTURES, "metadata": list("abcde"), "tag": "a/b%c\\d"},
    "gray pictures": {"label_img": PICTURES[:, :1], "global_step": 123456},
    "wide pictures": {"label_img": PICTURES[:, :, :2]},
}


def files_in(folder):
    paths = [p for p in folder.rglob("*") if p.is_file() and "tfevents" not in p.name]
    return {p.relative_to(folder).as_posix(): p for p in paths}


def content(path):
    if path.suffix == ".png":
        return np.asarray(Image.open(path)).astype(int)
    if path.suffix == ".pbtxt":
        return text_format.Parse(path.read_text(), ProjectorConfig())
    return path.read_text()


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_are_those_of_torch(name, tmp_path):
    for make, folder in ((TorchWriter, "theirs"), (SummaryWriter, "ours")):
        with make(str(tmp_path / folder)) as writer:
            writer.add_embedding(POINTS, **EMBEDDINGS[name])
            writer.add_embedding(POINTS[:, :2].double(), global_step=99)
    theirs, ours = files_in(tmp_path / "theirs"), files_in(tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    for path in ours:
        expected = content(theirs[path])
        assert content(ours[path]) == (
            pytest.approx(expected, abs=1) if path.endswith(".png") else expected
        )


def test_pictures_of_bytes_are_shown_as_they_are(tmp_path):
    pictures = np.arange(2 * 3 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2) * 10
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(POINTS[:2], label_img=pictures)
    sprite = np.asarray(Image.open(tmp_path / "00000" / "default" / "sprite.png"))
    assert sprite[:2, :2].tolist() == pictures[0].transpose(1, 2, 0).tolist()


def test_embeddings_of_writers_before_stay_listed(tmp_path, caplog):
    for _ in range(2):
        with SummaryWriter(tmp_path) as writer:
            writer.add_embedding(POINTS, tag="first", label_img=PICTURES)
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(POINTS, tag="second")
    config = content(tmp_path / "projector_config.pbtxt")
    assert [it.tensor_name for it in config.embeddings] == ["first:00000", "second:00000"]
    assert [r.levelno for r in caplog.records if "is written again" in r.message] == [
        logging.WARNING
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"as_one_line": True}, {"pointy_brackets": True}, {"use_short_repeated_primitives": True}],
)
def test_what_others_have_listed_stays(options, tmp_path):
    theirs = ProjectorConfig(model_checkpoint_path="model.ckpt-7")
    words = theirs.embeddings.add(tensor_name="words", metadata_path="{embeddings}.tsv")
    words.sprite.single_image_dim.extend([1, 2])
    path = tmp_path / "projector_config.pbtxt"
    path.write_text(f"# of {{mine\n{text_format.MessageToString(theirs, **options)}")
    for _ in range(2):
        with SummaryWriter(tmp_path) as writer:
            writer.add_embedding(POINTS)
    config = content(path)
    assert config.model_checkpoint_path == "model.ckpt-7"
    assert config.embeddings[0] == words
    assert [it.tensor_name for it in config.embeddings] == ["words", "default:00000"]
    assert path.read_text().startswith("# of {mine\n")


def test_no_label_takes_the_place_of_another(tmp_path):
    labels = ["a\nb", "", "c\td", " ", "e"]
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(POINTS, labels)
        rows = [(label, "") for label in labels]
        writer.add_embedding(POINTS, rows, tag="rows", metadata_header=["a", "b"])
    for name, header in (("default", 0), ("rows", 1)):
        lines = (tmp_path / "00000" / name / "metadata.tsv").read_text().split("\n")[:-1]
        # As the projector does: no line is blank, and each has as many cells as the first.
        assert len([it for it in lines if it.strip()]) == len(POINTS) + header
        assert {it.count("\t") for it in lines} == {header}


@pytest.mark.parametrize(
    "arguments",
    [
        {"metadata": ["a"]},
        {"label_img": PICTURES[:2]},
        {"label_img": PICTURES[0]},
        {"metadata": ROWS, "metadata_header": ["one"]},
        {"mat": POINTS[0]},
    ],
)
def test_other_embeddings_are_refused(arguments, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="must"):
        writer.add_embedding(**{"mat": POINTS, **arguments})
    assert files_in(tmp_path) == {}


def test_a_file_in_place_of_the_folder_is_refused_as_by_torch(tmp_path):
    (tmp_path / "00000").mkdir()
    (tmp_path / "00000" / "default").touch()
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotADirectoryError):
        writer.add_embedding(POINTS)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Dropout(0.5))
        )
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x, y):
        hidden = self.layers(x.flatten(1)[:, :16])
        return hidden * self.scale + y, hidden.sum()


class Parted(torch.nn.Module):
    def forward(self, x):
        return torch.split(x, 2)


MODULES = {
    "linear": (torch.nn.Linear(3, 2), torch.zeros(1, 3)),
    "convolutions": (
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2)
        ),
        torch.zeros(2, 1, 8, 8),
    ),
    "nested": (Block(), (torch.zeros(2, 4, 6), torch.zeros(8))),
    "recurrent": (torch.nn.LSTM(3, 4), torch.zeros(5, 1, 3)),
    "shared": (torch.nn.Sequential(*[torch.nn.Linear(3, 3)] * 2), torch.zeros(1, 3)),
    "several outputs": (Parted(), torch.zeros(4, 3)),
}


# torch deprecates what both use to trace, and its own LSTM is not sure to be traced well.
traced = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


@traced
@pytest.mark.parametrize("name", MODULES)
def test_graphs_are_those_of_torch(name, tmp_path):
    module, inputs = MODULES[name]
    module.train()
    for make, folder in ((TorchWriter, "theirs"), (SummaryWriter, "ours")):
        with make(str(tmp_path / folder)) as writer:
            writer.add_graph(module, inputs)
    assert module.training
    ours, theirs = (events_in(tmp_path / folder)["."] for folder in ("ours", "theirs"))
    (graph, metadata), (their_graph, their_metadata) = ours, theirs
    assert metadata.tagged_run_metadata == their_metadata.tagged_run_metadata
    assert GraphDef.FromString(graph.graph_def) == GraphDef.FromString(their_graph.graph_def)


@traced
def test_a_graph_is_printed(tmp_path, capsys):
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(torch.nn.Linear(3, 2), torch.zeros(1, 3), verbose=True)
    assert "aten::linear" in capsys.readouterr().out


@traced
def test_a_module_that_cannot_be_traced_raises(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(RuntimeError):
        writer.add_graph(torch.nn.Linear(3, 2), torch.zeros(1, 7))
