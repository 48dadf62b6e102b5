"""Run options of several parties, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def merged_options(given: Sequence[Any]) -> Any:
    """One ``RunOptions``: the larger trace level, timeout and pool, and all debug watches.

    What only one of them asks for is done. None of ``given`` is changed.
    """
    merged = v1.RunOptions()
    merged.CopyFrom(given[0])
    for options in given[1:]:
        merged.trace_level = max(merged.trace_level, options.trace_level)
        merged.timeout_in_ms = max(merged.timeout_in_ms, options.timeout_in_ms)
        merged.inter_op_thread_pool = max(merged.inter_op_thread_pool, options.inter_op_thread_pool)
        merged.output_partition_graphs |= options.output_partition_graphs
        merged.report_tensor_allocations_upon_oom |= options.report_tensor_allocations_upon_oom
        debug, other = merged.debug_options, options.debug_options
        debug.debug_tensor_watch_opts.extend(other.debug_tensor_watch_opts)
        debug.reset_disk_byte_usage |= other.reset_disk_byte_usage
    return merged
