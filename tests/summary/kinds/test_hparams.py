from argparse import Namespace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto import summary_pb2
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams import summary as theirs
from tensorboard.plugins.hparams.backend_context import Context

from runhooks.summary import FileWriter
from runhooks.testing import FakeClock

NOW = 1_700_000_000.25


def parsed(message: object) -> summary_pb2.Summary.Value:
    return summary_pb2.Summary.FromString(message.SerializeToString()).value[0]


def start_info(value: summary_pb2.Summary.Value) -> object:
    return metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)


@pytest.fixture(autouse=True)
def clock():
    with FakeClock(wall_start=NOW) as clock:
        yield clock


def test_a_run_that_begins_is_tensorboards_message(writer) -> None:
    hparams = {"rate": 0.1, "layers": 3, "deep": True, "optimizer": "adam", "sizes": [1, 2]}
    writer.hparams(hparams)
    expected = parsed(theirs.session_start_pb(hparams, start_time_secs=NOW))
    assert start_info(writer.value) == start_info(expected)
    assert (writer.value.tag, writer.value.tensor) == (expected.tag, expected.tensor)


def test_a_run_with_metrics_is_a_finished_one(writer) -> None:
    writer.hparams({"rate": 0.1, "deep": False, "optimizer": "adam"}, {"test/loss": 0.5}, 9)
    start, loss, end = writer.values
    assert start.tag == metadata.SESSION_START_INFO_TAG
    assert (loss.tag, loss.simple_value) == ("test/loss", 0.5)
    assert end == parsed(theirs.session_end_pb(api_pb2.STATUS_SUCCESS, end_time_secs=NOW))
    assert writer.steps == [9]


@pytest.mark.parametrize("hparams", [None, [("a", 1)], Namespace(a=1)], ids=repr)
def test_what_is_no_dict_is_refused_at_once(writer, hparams: object) -> None:
    with pytest.raises(TypeError, match="hparams must be a dict"):
        writer.hparams(hparams)
    with pytest.raises(TypeError, match="metrics must be a dict"):
        writer.hparams({"a": 1}, 3)
    with pytest.raises(TypeError, match="hparams must be str"):
        writer.hparams({1: 2})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), True),
        (np.array(2), 2.0),
        (jnp.float32(0.25), 0.25),
        (torch.tensor(7), 7.0),
        (float("nan"), float("nan")),
        (None, "None"),
        (np.zeros(2), "[0. 0.]"),
        ({"a": 1}, "{'a': 1}"),
        (np.linalg.norm, "norm"),
    ],
)
def test_any_value_will_do(writer, value: object, expected: object) -> None:
    writer.hparams({"x": value})
    written = start_info(writer.value).hparams["x"]
    got = getattr(written, written.WhichOneof("kind"))
    assert type(got) is type(expected)
    assert str(got) == str(expected)


def experiment_of(logdir: Path) -> api_pb2.Experiment:
    """What TensorBoard's own tab of hyperparameters finds under ``logdir``."""
    multiplexer = EventMultiplexer(tensor_size_guidance={"scalars": 0})
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(logdir))
    backend = Context(TBContext(logdir=str(logdir), data_provider=provider))
    request, experiment = RequestContext(), "123"
    return backend.experiment_from_metadata(
        request,
        experiment,
        include_metrics=True,
        hparams_run_to_tag_to_content=backend.hparams_metadata(request, experiment),
        data_provider_hparams=backend.hparams_from_data_provider(request, experiment, 0),
    )


def test_tensorboard_shows_the_hyperparameters_and_metrics_of_all_runs(tmp_path: Path) -> None:
    runs = {
        "a": ({"rate": 0.1, "layers": 3}, {"test/loss": 0.5}),
        "b": ({"rate": 0.2, "optimizer": "adam"}, {"test/accuracy": 0.75}),
        "c": ({"rate": 0.3, "deep": True}, None),
    }
    for name, (hparams, metrics) in runs.items():
        with FileWriter(tmp_path / name) as writer:
            writer.hparams(hparams, metrics, 9)
    experiment = experiment_of(tmp_path)
    assert {it.name for it in experiment.hparam_infos} == {"rate", "layers", "optimizer", "deep"}
    assert {it.name.tag for it in experiment.metric_infos} == {"test/loss", "test/accuracy"}
