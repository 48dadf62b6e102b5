"""What runhooks puts into tensorboardX, and which of its tests differ, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.suites.__main__ import Suite


def _names() -> Mapping[str, Mapping[str, Any]]:
    from runhooks.tensorboard import SummaryWriter

    ours = {"SummaryWriter": SummaryWriter}
    return {"tensorboardX": ours, "tensorboardX.writer": ours}


def _prepare() -> None:
    import moto

    moto.mock_s3 = moto.mock_aws  # type: ignore[attr-defined]  # its name until moto 5


SUITE = Suite(
    files=tuple(
        f"tests/test_{name}.py"
        for name in (
            "embedding",
            "figure",
            "hparams",
            "multiprocess_write",
            "numpy",
            "pr_curve",
            "pytorch_graph",
            "pytorch_np",
            "summary_writer",
            "writer",
        )
    ),
    names=_names,
    packages=("tests",),
    prepare=_prepare,
    not_ours={
        "test_embedding.py::*::test_embedding_s3_mock": "moto answers for boto3 in the process; "
        "our stores ask through other libraries",
        "test_writer.py::*::test_writer_with_default_metadata": "it looks into its own file writer",
    },
    differences={
        "test_embedding.py::*::test_embedding_fail": "images need not be square, as with torch",
        "test_writer.py::*::test_flush*": "they ask for the private name of the event file",
    },
)
