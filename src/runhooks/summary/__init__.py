"""Summaries: what values mean to whoever reads an event file, and the writer of such files."""

from typing import TYPE_CHECKING

from runhooks.arrays.histogram import BUCKETS, HistogramCounts, histogram_counts
from runhooks.events import Event, SessionLog, SessionStatus
from runhooks.lazy import lazily
from runhooks.summary.file_writer import FileWriter, FileWriterCache
from runhooks.summary.graph_def import encode_graph
from runhooks.summary.kinds.audio import audio_value, clip_value
from runhooks.summary.kinds.custom_scalars import Margin, custom_scalars_value
from runhooks.summary.kinds.histogram import histogram_value
from runhooks.summary.kinds.hparams import hparams_values
from runhooks.summary.kinds.image import image_value, picture_value
from runhooks.summary.kinds.mesh import mesh_values
from runhooks.summary.kinds.pr_curve import pr_curve_value
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import tensor_value, text_value
from runhooks.summary.message import DataClass, Summary, SummaryDescription, SummaryMetadata, Value
from runhooks.summary.ops import (
    audio,
    gradient_norms,
    histogram,
    image,
    merge,
    merge_all,
    scalar,
    scalars,
    tensor_summary,
    text,
)
from runhooks.summary.sinks.multi_writer import adapted
from runhooks.summary.writer import Writer

if TYPE_CHECKING:
    from runhooks.summary.sinks.json_lines_writer import JsonLinesWriter
    from runhooks.summary.sinks.memory_writer import MemoryWriter
    from runhooks.summary.sinks.mlflow import MlflowWriter
    from runhooks.summary.sinks.multi_writer import MultiWriter
    from runhooks.summary.sinks.points import SummaryPoint
    from runhooks.summary.sinks.weights_and_biases import WeightsAndBiasesWriter
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "runhooks.summary.sinks.json_lines_writer": ["JsonLinesWriter"],
            "runhooks.summary.sinks.memory_writer": ["MemoryWriter"],
            "runhooks.summary.sinks.mlflow": ["MlflowWriter"],
            "runhooks.summary.sinks.multi_writer": ["MultiWriter"],
            "runhooks.summary.sinks.points": ["SummaryPoint"],
            "runhooks.summary.sinks.weights_and_biases": ["WeightsAndBiasesWriter"],
        },
        elsewhere=lambda name: (
            ": it is runhooks.tensorboard.SummaryWriter" if name == "SummaryWriter" else ""
        ),
    )

__all__ = [
    "BUCKETS",
    "DataClass",
    "Event",
    "FileWriter",
    "FileWriterCache",
    "HistogramCounts",
    "JsonLinesWriter",
    "Margin",
    "MemoryWriter",
    "MlflowWriter",
    "MultiWriter",
    "SessionLog",
    "SessionStatus",
    "Summary",
    "SummaryDescription",
    "SummaryMetadata",
    "SummaryPoint",
    "Value",
    "WeightsAndBiasesWriter",
    "Writer",
    "adapted",
    "audio",
    "audio_value",
    "clip_value",
    "custom_scalars_value",
    "encode_graph",
    "gradient_norms",
    "histogram",
    "histogram_counts",
    "histogram_value",
    "hparams_values",
    "image",
    "image_value",
    "merge",
    "merge_all",
    "mesh_values",
    "picture_value",
    "pr_curve_value",
    "scalar",
    "scalar_value",
    "scalars",
    "tensor_summary",
    "tensor_value",
    "text",
    "text_value",
]
