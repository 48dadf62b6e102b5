from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto import summary_pb2
from tensorboard.util.tensor_util import make_ndarray

import runhooks as rh
from runhooks.summary import SummaryMetadata

v1 = tf.compat.v1
SAMPLES = np.random.default_rng(0).uniform(-1, 1, (2, 20, 1)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 1), np.uint8)


def run(graph: rh.Graph, op: Any) -> list[Any]:
    with graph.as_default(), rh.Session() as session:
        message = session.run(op).SerializeToString()
    return list(summary_pb2.Summary.FromString(message).value)


# The same program twice: `api` is rh or tf.compat.v1, `summary` its summary module.
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "a name twice": lambda api, s: [s.scalar("loss", 1.0), s.scalar("loss", 1.0)],
    "names that differ by case": lambda api, s: [s.scalar("Loss", 1.0), s.scalar("loss", 1.0)],
    "a name that is no name": lambda api, s: [s.scalar("/a b:c", 1.0)],
    "a family": lambda api, s: [s.scalar("loss", 1.0, family="train")],
    "a family twice": lambda api, s: [
        s.scalar("loss", 1.0, family="train"),
        s.scalar("loss", 1.0, family="train"),
        s.scalar("loss", 1.0),
    ],
    "an odd family": lambda api, s: [s.histogram("loss", np.ones(2), family="my train")],
    "images": lambda api, s: [s.image("digits", IMAGES), s.image("one", IMAGES, 1, family="f")],
    "audio": lambda api, s: [
        s.audio("beep", SAMPLES, 8000),
        s.audio("one", SAMPLES[..., 0], 8000.0, max_outputs=1, family="f"),
    ],
    "tensors": lambda api, s: [
        s.tensor_summary("t", np.float32([1, 2]), family="f"),
        s.tensor_summary("t", 1.0, "what it is", display_name="T"),
    ],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_tags_are_tensorflows(graph: rh.Graph, tensorflows_op, program: str) -> None:
    make = PROGRAMS[program]

    def ops(api: Any, name_scope: Any, summary: Any) -> list[Any]:
        ops = make(api, summary)
        with name_scope("outer"):
            return ops + make(api, summary)

    theirs = tensorflows_op(lambda: v1.summary.merge(ops(v1, v1.name_scope, v1.summary)))
    with graph.as_default():
        merged = rh.summary.merge(ops(rh, rh.name_scope, rh.summary))
    assert [v.tag for v in run(graph, merged)] == [v.tag for v in theirs]


def test_audio_is_tensorflows(graph: rh.Graph, tensorflows_op) -> None:
    rate = rh.placeholder("rate")
    op = rh.summary.audio("beep", SAMPLES, rate, max_outputs=1)
    with rh.Session() as session:
        message = session.run(op, feed_dict={rate: 16000}).SerializeToString()
    theirs = tensorflows_op(lambda: v1.summary.audio("beep", SAMPLES, 16000, max_outputs=1))
    assert list(summary_pb2.Summary.FromString(message).value) == theirs


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        SummaryMetadata("text", b"content", "old name", "old"),
        summary_pb2.SummaryMetadata(
            display_name="old name",
            summary_description="old",
            plugin_data=summary_pb2.SummaryMetadata.PluginData(
                plugin_name="text", content=b"content"
            ),
        ),
    ],
)
def test_metadata_of_a_tensor_is_tensorflows(graph: rh.Graph, tensorflows_op, metadata) -> None:
    array = np.int32([[1, 2], [3, 4]])
    op = rh.summary.tensor_summary("t", array, "**new**", None, metadata, display_name="name")
    plain = rh.summary.tensor_summary("plain", array, summary_metadata=metadata)

    def theirs() -> Any:
        copies = [v1.SummaryMetadata() for _ in range(2)]
        for copy in copies:
            copy.ParseFromString(metadata.SerializeToString() if metadata else b"")
        return v1.summary.merge(
            [
                v1.summary.tensor_summary("t", array, "**new**", None, copies[0], None, "name"),
                v1.summary.tensor_summary("plain", array, summary_metadata=copies[1]),
            ]
        )

    ours, expected = run(graph, rh.summary.merge([op, plain])), tensorflows_op(theirs)
    assert [v.metadata for v in ours] == [v.metadata for v in expected]
    assert [make_ndarray(v.tensor).tolist() for v in ours] == [array.tolist()] * 2


def test_collections_and_scopes_choose_what_is_merged(graph: rh.Graph) -> None:
    rh.summary.scalar("loss", 1.0)
    with rh.name_scope("eval"):
        rh.summary.audio("beep", SAMPLES, 8000, 1)
        rh.summary.tensor_summary("t", 1.0, collections=["mine"])
    tags = {
        "all": rh.summary.merge_all(),
        "eval": rh.summary.merge_all(scope="eval/"),
        "mine": rh.summary.merge_all("mine", name="merged"),
    }
    assert {key: [v.tag for v in run(graph, op)] for key, op in tags.items()} == {
        "all": ["loss", "eval/beep/audio"],
        "eval": ["eval/beep/audio"],
        "mine": ["eval/t"],
    }
    assert tags["mine"].name == "merged:0"
    assert rh.summary.merge_all(scope="test/") is None


def test_what_cannot_be_is_refused_at_once(graph: rh.Graph) -> None:
    with pytest.raises(ValueError, match="max_outputs"):
        rh.summary.audio("beep", SAMPLES, 8000, 0)
    with pytest.raises(TypeError, match="'beep' needs a tensor"):
        rh.summary.audio("beep", None, 8000)
    with pytest.raises(ValueError, match="inputs"):
        rh.summary.merge([])


@pytest.mark.parametrize("kind", ["scalar", "image", "audio", "text", "tensor_summary"])
def test_what_is_not_one_tensor_is_refused_where_it_is_written(graph: rh.Graph, kind: str) -> None:
    def make(value: object) -> None:
        more = {"sample_rate": 8000} if kind == "audio" else {}
        getattr(rh.summary, kind)("loss", value, **more)

    with graph.as_default():
        metrics = rh.call(lambda: {"nll": 1.0, "acc": 2.0}, name="metrics")
        state = rh.Variable({"weight": np.ones(3)}, name="state")
        for value in ({"nll": metrics["nll"], "acc": metrics["acc"]}, state):
            with pytest.raises(TypeError, match=r"'loss' takes one tensor.*(nll|weight)"):
                make(value)
        with pytest.raises(TypeError, match=r"'loss' needs a tensor.*function.*rh\.call"):
            make(lambda: 1.0)
        for value in (object(), {1.0}, rh.group(name="train")):
            with pytest.raises(TypeError, match="'loss' needs a tensor"):
                make(value)
        if kind != "text":
            with pytest.raises(ValueError, match="metric.*did you mean 'metrics'"):
                make("metric")
        for value in (metrics["nll"], 0.5, np.ones(1)):
            make(value)


def test_a_scalar_of_several_numbers_is_refused_where_it_is_written(graph: rh.Graph) -> None:
    with graph.as_default():
        loss = rh.call(lambda: 1.0)
        for value in ([loss, loss], np.ones(3), rh.Variable(np.ones(3), name="weights")):
            with pytest.raises(ValueError, match="'loss'"):
                rh.summary.scalar("loss", value)
        rh.summary.scalar("loss", [loss])


def test_a_histogram_is_made_of_tensors(graph: rh.Graph) -> None:
    with graph.as_default():
        for value in (len, {"a": lambda: 1.0}, rh.group(name="train")):
            with pytest.raises(TypeError, match="'weights' needs a tensor"):
                rh.summary.histogram("weights", value)


def test_the_name_of_a_summary_names_its_tensor_too(graph: rh.Graph) -> None:
    """Also of a pytree, whose leaves are then under it, and every number in it."""
    rh.call(lambda: 2.0, name="loss")
    rh.call(lambda: {"a": {"b": 1.0}, "c": np.ones(3), "d": np.float32(3)}, name="metrics")
    made = [
        rh.summary.scalar("loss"),
        rh.summary.scalar("train/loss", "loss"),
        rh.summary.scalars("metrics"),
        rh.summary.histogram("metrics"),
        rh.summary.histogram("train", "loss"),
    ]
    assert [[value.tag for value in run(graph, op)] for op in made] == [
        ["loss"],
        ["train/loss"],
        ["metrics/a/b", "metrics/d"],
        ["metrics_1/a/b", "metrics_1/c", "metrics_1/d"],
        ["train"],
    ]
    with pytest.raises(ValueError, match="los"):
        rh.summary.scalar("los")
    text = rh.summary.scalars("text", rh.call(lambda: {"a": "b", "c": np.ones(2)}))
    with pytest.raises(ValueError, match=r"'text' has found no single number.*'a', 'c'"):
        run(graph, text)
    array = rh.summary.scalars("array", rh.call(lambda: np.ones(3)))
    with pytest.raises(ValueError, match=r"an array of shape \[3\]: write rh.summary.histogram"):
        run(graph, array)


def test_arguments_in_the_wrong_order_are_told(graph: rh.Graph) -> None:
    with graph.as_default():
        loss = rh.call(lambda: 1.0)
        for make in (rh.summary.scalar, rh.summary.histogram, rh.summary.image):
            with pytest.raises(TypeError, match="order of the arguments"):
                make(loss, "loss")
