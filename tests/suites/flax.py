"""What runhooks puts into flax, and which of its tests differ, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.suites.__main__ import Suite


def _names() -> Mapping[str, Mapping[str, Any]]:
    from runhooks.tensorboard.flax import SummaryWriter

    return {"flax.metrics.tensorboard": {"SummaryWriter": SummaryWriter}}


def _prepare() -> None:
    from absl import flags

    flags.FLAGS(["suites"])  # the tests ask them for a directory


SUITE = Suite(
    files=("tests/tensorboard_test.py",),
    names=_names,
    prepare=_prepare,
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
    differences={
        "*::test_summarywriter_*_scaled": "a gray image is written with one channel, not as RGB",
        "*::test_summarywriter_image_float_pixel_values": "floats are rounded, not cut off",
        "*::test_summarywriter_histogram_defaultbins": "512 buckets at most, not 30 bins",
        "*::test_summarywriter_flush_after_close": "there is nothing to flush, which is no error",
    },
)
