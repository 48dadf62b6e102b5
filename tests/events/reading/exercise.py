"""``exercise``: everything that can be done with an event file, whatever is in it.

Damage is reported or skipped, and raises nothing but DataLossError.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runhooks.errors import DataLossError
from runhooks.events import check, read, stream


def exercise(content: bytes) -> None:
    """Read ``content`` as an event file: at once, piece by piece, checked, streamed, exported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.out.tfevents.1")
        path.write_bytes(content[: len(content) // 2])
        grown = read(folder)
        path.write_bytes(content)
        grown.update()
        run = read(folder).only
        for tag, (kind, count, *_) in run.tags.items():
            if kind == "scalar":
                assert len(run.scalars[tag].steps) == count
            else:
                touch(run.points(kind)[tag])
        with contextlib.suppress(DataLossError):
            _ = run.hparams
        _ = run.graph, run.session_logs
        assert grown.damages == run.damages
        assert list(grown.only.tags) == list(run.tags)
        (report,) = check(folder)
        skipped = sum(damage.skipped for damage in report.damages)
        assert skipped + report.partial <= report.size == len(content)
        for _point in stream(folder):
            pass
        run.to_json_lines(io.StringIO())


def touch(points: Sequence[Any]) -> None:
    for at in range(len(points)):
        with contextlib.suppress(DataLossError):
            _ = points[at]
