from argparse import Namespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams import summary as theirs

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
    experiment, start, loss, end = writer.values
    types = {"rate": "FLOAT64", "deep": "BOOL", "optimizer": "STRING"}
    infos = [
        api_pb2.HParamInfo(name=name, type=f"DATA_TYPE_{kind}") for name, kind in types.items()
    ]
    metric = api_pb2.MetricInfo(name=api_pb2.MetricName(tag="test/loss"))
    assert experiment == parsed(theirs.experiment_pb(infos, [metric], time_created_secs=NOW))
    assert start.tag == metadata.SESSION_START_INFO_TAG
    assert (loss.tag, loss.simple_value) == ("test/loss", 0.5)
    assert end == parsed(theirs.session_end_pb(api_pb2.STATUS_SUCCESS, end_time_secs=NOW))
    assert writer.steps == [9]


@pytest.mark.parametrize("hparams", [None, [("a", 1)], Namespace(a=1)], ids=repr)
def test_what_is_no_dict_is_refused_at_once(writer, hparams: object) -> None:
    with pytest.raises(TypeError, match="hparams must be a dict of values by name, got"):
        writer.hparams(hparams)
    with pytest.raises(TypeError, match="metrics must be a dict of values by name, got 3"):
        writer.hparams({"a": 1}, 3)
    with pytest.raises(TypeError, match="the names of hparams must be str, got 1"):
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
    ],
)
def test_any_value_will_do(writer, value: object, expected: object) -> None:
    writer.hparams({"x": value})
    written = start_info(writer.value).hparams["x"]
    got = getattr(written, written.WhichOneof("kind"))
    assert type(got) is type(expected)
    assert str(got) == str(expected)
