"""``EventAccumulator``: ours beside TensorBoard's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from tensorboard.backend.event_processing.event_accumulator import (
    DEFAULT_SIZE_GUIDANCE,
    STORE_EVERYTHING_SIZE_GUIDANCE,
)
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator as TensorBoards,
)
from tensorboard.compat.proto import config_pb2, event_pb2, meta_graph_pb2
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks.summary import FileWriter
from runhooks.tensorboard import EventAccumulator, SummaryWriter
from runhooks.tensorboard.event_accumulator import kept_in_reservoir

RNG = np.random.default_rng(0)
LISTS = {
    "scalars": "Scalars",
    "histograms": "Histograms",
    "distributions": "CompressedHistograms",
    "images": "Images",
    "audio": "Audio",
    "tensors": "Tensors",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories that torch, TensorFlow 2 and ours have written, by name."""
    folder = tmp_path_factory.mktemp("runs")
    for name, writer in (("torch", TorchWriter), ("ours", SummaryWriter)):
        with writer(str(folder / name)) as opened:
            write(opened)
    with tf.summary.create_file_writer(str(folder / "tensorflow")).as_default():
        for step in range(12):
            tf.summary.scalar("loss", step / 3, step)
            tf.summary.histogram("weights", RNG.normal(size=50), step)
            tf.summary.image("image", RNG.random((2, 3, 4, 3)), step)
            tf.summary.text("text", "some text", step)
            tf.summary.audio("audio", RNG.random((1, 20, 1), np.float32), 8000, step)
    with FileWriter(folder / "batches") as kept:
        kept.image("images", RNG.random((2, 3, 4, 3)), 1)
        kept.hparams({"lr": 0.1}, {"loss": 1}, 1)
        kept.histogram("histogram", np.arange(5), 1)
    return folder


def write(writer):
    for step in range(12):
        writer.add_scalar("loss", step / 3, step)
        writer.add_scalar("accuracy", 0.5, step)
        writer.add_scalar("new", step / 7, step, new_style=True)
        writer.add_scalar("double", step / 7, step, new_style=True, double_precision=True)
        writer.add_histogram("weights", RNG.normal(size=100), step)
        writer.add_histogram("zeros", np.zeros(3), step)
        writer.add_image("image", RNG.random((3, 4, 5)), step)
        writer.add_audio("audio", RNG.random(30), step)
        writer.add_text("text", f"step {step}", step)
        writer.add_tensor("tensor", torch.arange(6).reshape(2, 3), step)
    writer.add_custom_scalars_multilinechart(["loss"])


def plain(event):
    """The fields of an event as a list, tensors as arrays that can be compared."""
    fields = event._asdict() if hasattr(event, "_asdict") else vars(event)
    found = dict(fields)
    if "histogram_value" in found:
        value = found["histogram_value"]
        found["histogram_value"] = list(
            value._asdict().values() if hasattr(value, "_asdict") else vars(value).values()
        )
    if "tensor_proto" in found:
        array = tensor_util.make_ndarray(found["tensor_proto"])
        found["tensor_proto"] = [array.dtype.name, array.shape, array.tolist()]
    return found


GUIDANCE = {
    "all": (None, STORE_EVERYTHING_SIZE_GUIDANCE),
    "all, said": ("all", STORE_EVERYTHING_SIZE_GUIDANCE),
    "0": (STORE_EVERYTHING_SIZE_GUIDANCE, STORE_EVERYTHING_SIZE_GUIDANCE),
    "some": (dict.fromkeys(LISTS, 5), dict.fromkeys(LISTS, 5)),
    "default": (DEFAULT_SIZE_GUIDANCE, None),
}


@pytest.mark.parametrize("guidance", GUIDANCE)
@pytest.mark.parametrize("run", ["torch", "ours", "tensorflow", "batches"])
def test_contents_are_those_of_tensorboard(run, guidance, runs):
    ours = EventAccumulator(str(runs / run), GUIDANCE[guidance][0]).Reload()
    theirs = TensorBoards(str(runs / run), GUIDANCE[guidance][1]).Reload()
    tags, expected = ours.Tags(), theirs.Tags()
    assert tags == {k: sorted(v) if isinstance(v, list) else v for k, v in expected.items()}
    for kind, method in LISTS.items():
        for tag in tags[kind]:
            found = list(map(plain, getattr(ours, method)(tag)))
            assert found == list(map(plain, getattr(theirs, method)(tag)))
    assert ours.FirstEventTimestamp() == theirs.FirstEventTimestamp()


@pytest.mark.parametrize("run", ["torch", "tensorflow", "batches"])
def test_metadata_is_that_of_tensorboard(run, runs):
    ours = EventAccumulator(runs / run).Reload()
    theirs = TensorBoards(str(runs / run)).Reload()
    for tag, expected in theirs.summary_metadata.items():
        found = ours.SummaryMetadata(tag)
        assert found.display_name == expected.display_name
        assert found.summary_description == expected.summary_description
        assert found.plugin_data.plugin_name == expected.plugin_data.plugin_name
        assert found.plugin_data.content == expected.plugin_data.content
        plugin = expected.plugin_data.plugin_name
        assert ours.PluginTagToContent(plugin) == theirs.PluginTagToContent(plugin)
    with pytest.raises(KeyError, match="'none'"):
        ours.PluginTagToContent("none")


def test_one_file_is_read(runs):
    (path,) = (runs / "torch").glob("*tfevents*")
    ours, theirs = EventAccumulator(path).Reload(), TensorBoards(str(path)).Reload()
    assert list(map(plain, ours.Scalars("loss"))) == list(map(plain, theirs.Scalars("loss")))


def test_only_what_is_new_is_added(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        accumulator = EventAccumulator(tmp_path)
        assert accumulator.Tags()["scalars"] == []
        for step in range(3):
            writer.add_scalar("loss", float(step), step)
            writer.flush()
            assert len(accumulator.Reload().Scalars("loss")) == step + 1


def test_a_restart_purges(tmp_path):
    with SummaryWriter(tmp_path, filename_suffix=".a") as writer:
        for step in range(5):
            writer.add_scalar("loss", 1.0, step)
    with SummaryWriter(tmp_path, purge_step=3, filename_suffix=".b") as writer:
        writer.add_scalar("loss", 2.0, 3)
    theirs = TensorBoards(str(tmp_path), purge_orphaned_data=True).Reload()
    for purge, expected in ((True, [1, 1, 1, 2]), (False, [1, 1, 1, 1, 1, 2])):
        ours = EventAccumulator(tmp_path, purge_orphaned_data=purge).Reload()
        assert [event.value for event in ours.Scalars("loss")] == expected
    assert [event.value for event in theirs.Scalars("loss")] == [1, 1, 1, 2]


def test_a_tag_whose_points_were_all_purged_is_still_there(tmp_path):
    def write(suffix, purge_step, *tags):
        with SummaryWriter(tmp_path, purge_step=purge_step, filename_suffix=suffix) as writer:
            for tag in tags:
                writer.add_scalar(tag, 1.0, 5)
                writer.add_histogram(f"{tag}/histogram", np.arange(3.0), 5)
                writer.add_text(f"{tag}/text", "text", 5)

    write(".a", None, "gone", "stays")
    write(".b", 3, "stays")
    ours = EventAccumulator(tmp_path).Reload()
    theirs = TensorBoards(str(tmp_path), purge_orphaned_data=True).Reload()
    for kind in ("scalars", "histograms", "tensors"):
        assert ours.Tags()[kind] == sorted(theirs.Tags()[kind])
    assert list(ours.Scalars("gone")) == theirs.Scalars("gone") == []
    assert ours.Histograms("gone/histogram") == theirs.Histograms("gone/histogram") == []
    assert ours.CompressedHistograms("gone/histogram") == []
    assert ours.Tensors("gone/text/text_summary") == []
    assert len(ours.Scalars("stays")) == 1


@pytest.fixture
def messages(tmp_path):
    """A run with a graph, a metagraph and the metadata of a run, in this order."""
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(1.0, name="one")
    metagraph = meta_graph_pb2.MetaGraphDef()
    metagraph.graph_def.ParseFromString(graph.as_graph_def().SerializeToString())
    metadata = config_pb2.RunMetadata()
    metadata.step_stats.dev_stats.add(device="/device:CPU:0")

    def write(*fields):
        with SummaryWriter(tmp_path) as writer:
            tagged = {"tag": "step1", "run_metadata": metadata.SerializeToString()}
            values = {
                "graph_def": graph.as_graph_def().SerializeToString(),
                "meta_graph_def": metagraph.SerializeToString(),
                "tagged_run_metadata": event_pb2.TaggedRunMetadata(**tagged),
            }
            for field in fields:
                writer._get_file_writer().add_event(event_pb2.Event(**{field: values[field]}))
        return EventAccumulator(tmp_path).Reload(), TensorBoards(str(tmp_path)).Reload()

    return write


def test_messages_are_those_of_tensorboard(messages):
    ours, theirs = messages("graph_def", "meta_graph_def", "tagged_run_metadata")
    assert ours.Tags() == theirs.Tags()
    assert ours.Graph() == theirs.Graph()
    assert ours.MetaGraph() == theirs.MetaGraph()
    assert ours.RunMetadata("step1") == theirs.RunMetadata("step1")


def test_the_graph_may_be_in_a_metagraph(messages):
    ours, theirs = messages("meta_graph_def")
    assert ours.Graph() == theirs.Graph()


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be an event file or a directory"):
        EventAccumulator(tmp_path / "none").Reload()
    with pytest.raises(ValueError, match="no event"):
        EventAccumulator(tmp_path).FirstEventTimestamp()
    accumulator = EventAccumulator(tmp_path).Reload()
    for get in (accumulator.Graph, accumulator.MetaGraph, lambda: accumulator.RunMetadata("x")):
        with pytest.raises(ValueError, match="there is no"):
            get()
    unread = EventAccumulator(tmp_path)
    for method in LISTS.values():
        with pytest.raises(KeyError, match="'loss', among none at all"):
            getattr(accumulator, method)("loss")
        with pytest.raises(KeyError, match=r"'loss' yet: call Reload\(\) first"):
            getattr(unread, method)("loss")


@pytest.mark.parametrize("guidance", [5, {"scalars": -1}, {"scalars": "some"}])
def test_other_guidance_is_refused(guidance, tmp_path):
    with pytest.raises((TypeError, ValueError), match="size_guidance"):
        EventAccumulator(tmp_path, guidance)


def test_the_writer_is_named(runs):
    name = EventAccumulator(runs / "torch").GetSourceWriter()
    assert name == "tensorboard.summary.writer.event_file_writer"
    assert EventAccumulator(runs / "ours").GetSourceWriter() is None


def test_files_of_plugins_are_listed(tmp_path):
    accumulator = EventAccumulator(tmp_path)
    assert accumulator.PluginAssets("profile") == []
    (tmp_path / "plugins" / "profile").mkdir(parents=True)
    (tmp_path / "plugins" / "profile" / "a").write_text("text")
    assert accumulator.PluginAssets("profile") == ["a"]
    assert accumulator.RetrievePluginAsset("profile", "a") == "text"
    with pytest.raises(KeyError, match="has no file"):
        accumulator.RetrievePluginAsset("profile", "b")


@pytest.mark.parametrize(("count", "size"), [(3, 5), (5, 0), (100, 1), (1000, 7)])
def test_a_reservoir_keeps_the_last(count, size):
    kept = kept_in_reservoir(count, size)
    assert len(kept) == (min(count, size) if size else count)
    assert kept == sorted(set(kept))
    assert kept[-1] == count - 1


def test_tensors_are_arrays(runs):
    (first, *_) = EventAccumulator(runs / "torch").Reload().Tensors("tensor")
    assert np.asarray(first.tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first.tensor_proto.numpy().dtype == np.int64
    assert tf.make_ndarray(first.tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]
