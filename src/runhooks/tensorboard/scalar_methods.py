"""``ScalarMethods``: numbers, one by one and in groups."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runhooks import clock, events
from runhooks.arrays.scalars import NUMBERS
from runhooks.summary import SummaryMetadata
from runhooks.summary.kinds.scalar import kept_number
from runhooks.summary.kinds.scalar_with_metadata import described_scalar_value, tensor_scalar_value
from runhooks.summary.tag_and_step import text_tag
from runhooks.tensorboard.refusals import refusals
from runhooks.tensorboard.run_files import RunFiles


class ScalarMethods(RunFiles):
    """The methods of a ``SummaryWriter`` for numbers."""

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
        *,
        display_name: str = "",
        summary_description: str = "",
    ) -> None:
        """Add a number.

        Args:
            tag: Its tag.
            scalar_value: A number, or an array or list of size 1 on any device, which is read in
                the background.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
            new_style: Whether to write it as a tensor, as TensorFlow 2 does.
            double_precision: Whether such a tensor is float64, not float32.
            display_name: Stands in place of the tag in TensorBoard.
            summary_description: A description in Markdown.
        """
        writer = self.file_writer or self._get_file_writer()
        if (
            type(scalar_value) in NUMBERS
            and type(global_step) is int
            and type(tag) is str
            and not global_step >> 63
            and walltime is writer.default_wall_time is None
            and not (new_style or display_name or summary_description)
        ):
            writer.put(tag, scalar_value, global_step, clock.wall())  # nothing to check or to read
            return
        value = _kept(text_tag(tag), scalar_value)
        if new_style:
            made = tensor_scalar_value(tag, value, double_precision=double_precision)
            self._add(made, global_step, walltime)
        elif display_name or summary_description:
            metadata = SummaryMetadata(
                display_name=display_name, summary_description=summary_description
            )
            self._add(described_scalar_value(tag, value, metadata), global_step, walltime)
        else:
            writer.put(tag, value, *writer.at(global_step, walltime))

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add several numbers that TensorBoard shows in one chart, each in a sub-run of its own.

        Args:
            main_tag: The tag of all of them.
            tag_scalar_dict: The numbers, by what their sub-runs are called: ``main_tag_name``, in
                which ``/`` of ``main_tag`` is ``_``.
            global_step: Their step; None: 0.
            walltime: Their time, in seconds since the epoch; None: now.
        """
        text_tag(main_tag)
        if not isinstance(tag_scalar_dict, Mapping):
            raise TypeError(
                f"tag_scalar_dict must be a dict of numbers by name, got {tag_scalar_dict!r}"
            )
        step, wall_time = self._get_file_writer().at(global_step, walltime)
        for tag, scalar_value in tag_scalar_dict.items():
            value = _kept(main_tag, scalar_value)
            writer = self._sub_runs.get((main_tag, tag)) or self._open_sub_run(main_tag, tag)
            writer.put(main_tag, value, step, wall_time)

    @property
    def scalar_dict(self) -> dict[str, list[list[float]]]:
        """What ``add_scalars`` has written: by directory, lists of the time, step and value."""
        if not self._writes_to_disk:
            return {}
        self.flush()
        return {directory: _points(directory, tags) for directory, tags in self._groups.items()}

    def export_scalars_to_json(self, path: str | os.PathLike[str]) -> None:
        """Write ``scalar_dict`` to the file ``path``."""
        Path(path).write_text(json.dumps(self.scalar_dict), encoding="utf-8")


def _points(directory: str, tags: Iterable[str]) -> list[list[float]]:
    scalars = events.read(directory)["."].scalars
    found: list[list[float]] = []
    for tag in tags:
        steps, numbers, wall_times = scalars[tag]
        # The shortest number that is the same float32: what was given, not 0.10000000149.
        values = (float(str(number)) for number in numbers.astype(np.float32))
        found += map(list, zip(wall_times.tolist(), steps.tolist(), values, strict=True))
    return found


def _kept(tag: str, value: Any) -> Any:
    if getattr(value, "is_cpu", False) and value.numel() == 1:
        value = value.item()  # a tensor of PyTorch, which nobody has to wait for
    if type(value) in NUMBERS:
        return value
    with refusals():
        return kept_number(tag, _parsed(tag, value) if isinstance(value, str) else value)


def _parsed(tag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the value of scalar {tag!r} must be a number, got {text!r}") from None
