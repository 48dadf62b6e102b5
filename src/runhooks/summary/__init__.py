"""Summaries: what values mean to whoever reads an event file, and the writer of such files."""

from runhooks.events import Event, SessionLog, SessionStatus
from runhooks.summary.file_writer import FileWriter
from runhooks.summary.file_writer_cache import FileWriterCache
from runhooks.summary.graph_def import encode_graph
from runhooks.summary.histogram import BUCKETS, HistogramCounts, histogram_counts, histogram_value
from runhooks.summary.image import image_value
from runhooks.summary.message import Summary, Value
from runhooks.summary.ops import histogram, image, merge, merge_all, scalar, text
from runhooks.summary.scalar import scalar_value
from runhooks.summary.text import text_value

__all__ = [
    "BUCKETS",
    "Event",
    "FileWriter",
    "FileWriterCache",
    "HistogramCounts",
    "SessionLog",
    "SessionStatus",
    "Summary",
    "Value",
    "encode_graph",
    "histogram",
    "histogram_counts",
    "histogram_value",
    "image",
    "image_value",
    "merge",
    "merge_all",
    "scalar",
    "scalar_value",
    "text",
    "text_value",
]
