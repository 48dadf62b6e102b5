"""What runhooks puts into TensorFlow's modules, and which of its tests differ, and why."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tests.suites.__main__ import Suite

_TRAINING = "tensorflow.python.training."
_SUMMARY = "tensorflow.python.summary."


def _names() -> Mapping[str, Mapping[str, Any]]:
    import runhooks as rh
    from runhooks.tensorflow import train

    modules = ("monitored_session", "basic_session_run_hooks", "session_run_hook", "coordinator")
    found: dict[str, dict[str, Any]] = {}
    for name in (*modules, "training"):
        theirs = vars(importlib.import_module(_TRAINING + name))
        found[_TRAINING + name] = {it: getattr(train, it) for it in train.__all__ if it in theirs}
    writer = {"FileWriter": rh.summary.FileWriter}
    cache = {"FileWriterCache": rh.summary.FileWriterCache}
    return {
        **found,
        _SUMMARY + "writer.writer": writer,
        _SUMMARY + "writer.writer_cache": cache,
        _SUMMARY + "summary": {**writer, **cache},
    }


def _prepare() -> None:
    import tensorflow as tf
    from absl import flags

    tf.compat.v1.disable_v2_behavior()  # many are skipped without
    flags.FLAGS(["suites"])  # TensorFlow's tests ask them for a directory


SUITE = Suite(
    files=tuple(
        f"tensorflow/python/{name}_test.py"
        for name in (
            "training/monitored_session",
            "training/basic_session_run_hooks",
            "training/coordinator",
            "training/queue_runner",
            "training/supervisor",
            "training/training_util",
            "training/sync_replicas_optimizer",
            "summary/summary",
            "summary/writer/writer",
        )
    ),
    names=_names,
    packages=("tensorflow.python.summary.writer",),
    prepare=_prepare,
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
    not_ours={
        "*::test_session": "a helper of its TestCase, no test",
        "basic_*::GlobalStepWaiterHookTest::test_wait_for_step": "steps are made by a time.sleep "
        "that the test replaces; ours waits for a request to stop, and would wait for ever",
        "superv*::testStandardServicesWithGlobalStep": "a step of shape [1], of which "
        "TensorFlow's own global_step() makes no int with NumPy 2.4",
    },
    differences={
        "monitored_session_test.py::*::test_regular_exception_reported_to_coord_pass_through_run": (
            "a failed thread is a failure of the loop: the next run raises its error"
        ),
        "monitored_session_test.py::*::test_with_statement_and_close": (
            "a session may be closed inside its with block"
        ),
        "monitored_session_test.py::*::test_step_fn_recovery_*_with_raw_*": (
            "it replaces the private _tf_sess, which is not called here"
        ),
        "monitored_session_test.py::*DistributeCoordinatorTest::test_*_hook_disabled": (
            "the worker context of the distribute coordinator decides nothing here"
        ),
        "monitored_session_test.py::*DistributeCoordinatorTest::test_*_enable_on_non_chief_*": (
            "the same"
        ),
        "basic_*::LoggingTensorHookTest::test_print_formatter": (
            "it reads the format of the log's message, which is '%s' here, not the message"
        ),
        "basic_*::CheckpointSaverHookTest::test_summary_writer_defs": (
            "it asks a fake of TensorFlow's writers for a meta graph: the graph alone is written"
        ),
        "basic_*::StepCounterHookTest::test_log_warning_if_global_step_not_increased": (
            "it replaces log_first_n of TensorFlow's log; here the warning goes there as a warning"
        ),
        "basic_*::ProfilerHookTest::test_run_metadata_saves": (
            "it needs a fake of TensorFlow's writers, which runhooks does not write with"
        ),
        "writer_test.py::*::testGraph*As*": (
            "it wants a meta graph that repeats the graph: the graph alone is written"
        ),
        "writer_test.py::*::testPluginAssetSerialized": (
            "assets of TensorBoard plugins in collections of a graph, which nothing makes any more"
        ),
        "writer_test.py::*::testPluginMetadataStrippedFromSubsequentEvents": (
            "every value has its metadata: the first one may have been dropped"
        ),
        "writer_test.py::*::testUseAfterClose": (
            "a closed writer raises RuntimeError: what is added would be lost"
        ),
        "writer_test.py::FileWriterTestCase::testWriterException_*": (
            "it replaces a private object of TensorFlow's writer"
        ),
        "writer_test.py::*::testSharing_*": (
            "the writers of a directory share its file whatever their session, and summary "
            "operations of TensorFlow 2 write to their own"
        ),
    },
)
