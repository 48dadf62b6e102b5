"""What runhooks puts into CLU's metric writers, and which of its tests differ, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.suites.__main__ import Suite

_WRITERS = "clu.metric_writers."


def _names() -> Mapping[str, Mapping[str, Any]]:
    from runhooks.tensorboard import metric_writers as ours

    summary_writer = {"SummaryWriter": ours.SummaryWriter}
    return {
        _WRITERS + "interface": {"MetricWriter": ours.MetricWriter},
        _WRITERS + "async_writer": {
            "AsyncWriter": ours.AsyncWriter,
            "ensure_flushes": ours.ensure_flushes,
        },
        _WRITERS + "multi_writer": {"MultiWriter": ours.MultiWriter},
        _WRITERS + "logging_writer": {"LoggingWriter": ours.LoggingWriter},
        _WRITERS + "summary_writer": summary_writer,
        _WRITERS + "tf.summary_writer": summary_writer,
        _WRITERS + "utils": {
            "create_default_writer": ours.create_default_writer,
            "write_values": ours.write_values,
        },
    }


SUITE = Suite(
    files=tuple(
        f"clu/metric_writers/{name}_test.py"
        for name in (
            "async_writer",
            "logging_writer",
            "multi_writer",
            "utils",
            "tf/summary_writer",
        )
    ),
    names=_names,
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
    not_ours={"*::test_session": "a helper of its TestCase, no test"},
    differences={
        "async_*::test_reraises_exception": "the error itself is raised, not an AsyncError",
        "logging_*": "the lines are ours, of the logger 'runhooks'",
        "utils_*::test_write": "hyperparameters are written without a step, metadata is given by "
        "tag: as write_hparams and write_summaries take them",
        "summary_*::test_hparams*": "read without a flush: the event is in the file 0.2 s later",
        "summary_*::test_write_scalar": "scalars are written as numbers, not as tensors",
        "summary_*::test_write_histograms": "histograms are written as such, not as tensors",
        "summary_*::test_write_summaries": "bytes that are not metadata are refused",
    },
)
