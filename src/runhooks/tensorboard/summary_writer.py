"""``SummaryWriter``: the interface of torch's and tensorboardX's, on runhooks' event files."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments, clock
from runhooks.arrays.values import NUMBERS
from runhooks.errors import call_all
from runhooks.events import Message, SessionLog, SessionStatus
from runhooks.events.place import inside, place
from runhooks.stores.path import path_of
from runhooks.summary import (
    Margin,
    Summary,
    SummaryMetadata,
    Value,
    clip_value,
    custom_scalars_value,
    histogram_value,
    hparams_values,
    mesh_values,
    picture_value,
    pr_curve_value,
    tensor_value,
)
from runhooks.summary.media import video_value
from runhooks.summary.message import text_tag
from runhooks.summary.projector import Embedding, write_embedding
from runhooks.summary.values import Bins, counted_histogram_value, kept_number
from runhooks.summary.values import scalar_value as number_value
from runhooks.summary.writer import ClosedAtEnd
from runhooks.tensorboard.file_writer import FileWriter, NoFileWriter, step_and_time

_MOST_THRESHOLDS = 127
_ENCODED = {"%": "%25", "/": "%2f", "\\": "%5c"}


class SummaryWriter(ClosedAtEnd):
    """Writes event files in ``log_dir`` with the methods of ``torch.utils.tensorboard``.

    Arrays are those of ``runhooks.summary.Writer``, and written as there. What goes wrong in the
    background is raised, once, by a later call. ``global_step`` is what ``int`` takes (None: 0),
    ``walltime`` in seconds since the epoch (None: now).

    ``file_writer`` is the file of the run, and ``all_writers`` has it and those of the sub-runs by
    directory; both are None when they are closed.

    Args:
        log_dir: The directory; None: ``runs/<time>_<host><comment>``.
        comment: The end of the name of that directory.
        purge_step: Readers drop what was written before from this step on, in sub-runs too, once
            something is added to them.
        max_queue: How many events may wait, if above 500,000.
        flush_secs: Events are written after 0.2 seconds at the latest, or at once if this is less.
        filename_suffix: The end of the names of event files.
        write_to_disk: False: nothing is written, and no directory is made.
        logdir: tensorboardX's word for ``log_dir``.

    Raises:
        OSError: No file can be made in ``log_dir``.
        TypeError, ValueError: An argument is wrong or out of range.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        logdir: str | os.PathLike[str] | None = None,
    ) -> None:
        arguments.directory(log_dir=log_dir or None, logdir=logdir or None)
        self.log_dir = log_dir or logdir or _default_directory(comment)
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self._file_kind = FileWriter if write_to_disk else NoFileWriter
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._sub_runs: dict[tuple[str, str], FileWriter] = {}  # by main tag and tag
        self._start: int | None = None  # from there on sub-runs drop what they have
        self._started: set[str] = set()
        self._get_file_writer()

    @property
    def logdir(self) -> str | os.PathLike[str]:
        """As ``log_dir``."""
        return self.log_dir

    def get_logdir(self) -> str | os.PathLike[str]:
        """Return the directory, as it was given."""
        return self.log_dir

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.file_writer is None

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
        """Add a number, or an array or list of size 1.

        With ``new_style`` it is written as a tensor, as by TensorFlow 2: float32, or float64 with
        ``double_precision``. ``display_name`` stands in place of the tag in TensorBoard;
        ``summary_description`` is Markdown.
        """
        writer = self.file_writer or self._get_file_writer()
        is_plain = not (new_style or display_name or summary_description)
        if (
            is_plain
            and type(scalar_value) in NUMBERS
            and type(global_step) is int
            and type(tag) is str
            and not global_step >> 63
            and walltime is None
        ):
            writer.put(tag, scalar_value, global_step, clock.wall())
            return
        value = _kept(text_tag(tag), scalar_value)
        if is_plain:
            writer.put(tag, value, *step_and_time(global_step, walltime))
            return
        plugin = "scalars" if new_style else ""
        about = SummaryMetadata(plugin, b"", display_name, summary_description)
        dtype = ("float64" if double_precision else "float32") if new_style else None
        self._add(number_value(tag, value, about, dtype), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add numbers that TensorBoard shows in one chart, each in a sub-run ``main_tag_key``.

        ``/`` of ``main_tag`` becomes ``_`` there.
        """
        text_tag(main_tag)
        if not isinstance(tag_scalar_dict, Mapping):
            raise TypeError(
                f"tag_scalar_dict must be a dict of numbers by name, got {tag_scalar_dict!r}"
            )
        step, wall_time = step_and_time(global_step, walltime)
        for tag, scalar_value in tag_scalar_dict.items():
            value = _kept(main_tag, scalar_value)
            writer = self._sub_runs.get((main_tag, tag)) or self._open_group(main_tag, tag)
            writer.put(main_tag, value, step, wall_time)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Bins = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add how real numbers of any shape are distributed.

        ``bins`` is ``"tensorflow"``, for up to 512 buckets, whose width grows with the numbers in
        them, or what ``numpy.histogram`` takes. Beyond ``max_bins`` neighbours are put together.
        """
        edges = None if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(histogram_value(tag, values, edges, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,  # noqa: A002 (the name of the argument is torch's)
        max: float,  # noqa: A002
        num: float,
        sum: float,  # noqa: A002
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a histogram that was counted elsewhere; ``bucket_limits`` are the right edges."""
        value = counted_histogram_value(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(value, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image with 1 to 4 channels: uint8, or another dtype from 0.0 to 1.0.

        ``dataformats``: ``"CHW"``, ``"HWC"``, ``"HW"``, or as of ``add_images``.
        """
        self._add(picture_value(tag, img_tensor, dataformats, grid=True), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add a batch of images, or a list of images of one shape, as one image, 8 in a row.

        ``dataformats``: ``"NCHW"`` or ``"NHWC"``; of a list, those of one image.
        """
        if isinstance(img_tensor, list) and "N" not in dataformats.upper():
            dataformats = f"N{dataformats}"
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a figure of matplotlib, or a list of figures of one size, as an image.

        ``close``: whether to close it in ``pyplot``. Raises ImportError without matplotlib.
        """
        if isinstance(figure, list) and figure:
            pictures = np.stack([_drawn(one, close) for one in figure])
            self.add_image(tag, pictures, global_step, walltime, dataformats="NHWC")
        else:
            self.add_image(tag, _drawn(figure, close), global_step, walltime, dataformats="HWC")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: Any = None,
        fps: float = 4,
        walltime: float | None = None,
        dataformats: str = "NTCHW",
    ) -> None:
        """Add a batch of videos as one animated GIF, ``fps`` frames a second.

        ``[N, frames, 1 or 3 channels, height, width]``, else as for ``add_image``; ``dataformats``:
        these axes in any order. Raises ImportError without Pillow.
        """
        self._add(video_value(tag, vid_tensor, fps, dataformats), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add a clip of sound, of ``sample_rate`` frames a second, as for ``summary.clip_value``.

        ``[frames]``, ``[1, frames]`` or ``[frames, channels]``: int16, or floats from -1.0 to 1.0.
        """
        self._add(clip_value(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Add a text, which TensorBoard shows as Markdown, under ``tag/text_summary``."""
        if not isinstance(text_string, str):
            raise TypeError(f"text_string of {tag!r} must be a str, got {text_string!r}")
        value = tensor_value(f"{tag}/text_summary", [text_string], SummaryMetadata("text"))
        self._add(value, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Add an array as it is: any shape, numbers of any dtype."""
        self._add(tensor_value(tag, tensor, SummaryMetadata("tensor")), global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = _MOST_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add the precision-recall curve of a binary classifier, of at most 127 thresholds.

        ``labels`` are 0 and 1, ``predictions`` 0.0 to 1.0; else as for ``summary.pr_curve_value``.
        """
        thresholds = min(num_thresholds, _MOST_THRESHOLDS)
        value = pr_curve_value(tag, labels, predictions, thresholds, weights)
        self._add(value, global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add point clouds, or meshes of triangles, as for ``summary.mesh_values``.

        ``vertices`` and ``colors``, 0 to 255: ``[N, vertices, 3]``. ``faces``: ``[N, faces, 3]``.
        """
        values = mesh_values(tag, vertices, colors, faces, config_dict)
        self._add(values, global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Add which scalars TensorBoard shows in one chart. The last layout of a run counts.

        ``layout`` has the charts by category, then by title: each is ``["Multiline", tags]`` or
        ``["Margin", [value, lower, upper]]``.
        """
        charts = {
            category: {title: _chart(title, chart) for title, chart in of_category.items()}
            for category, of_category in layout.items()
        }
        self._add(custom_scalars_value(charts), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a layout with one chart, of several lines."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a layout with one chart, of a line in a band: ``tags`` are value, lower and upper."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
        *,
        name: str | None = None,
    ) -> None:
        """Add hyperparameters and metrics by name, as for ``summary.hparams_values``.

        Hyperparameters are bools, numbers or strs; metrics, numbers, written at ``global_step``.
        They go to a sub-run: ``run_name`` (tensorboardX: ``name``), else the time.
        """
        values = hparams_values(hparam_dict, metric_dict, hparam_domain_discrete)
        step, wall_time = step_and_time(global_step, None)
        run, name = self._get_file_writer().get_logdir(), run_name or name or str(clock.wall())
        writer = self._open_sub_run(run if name == "." else inside(run, name))
        try:
            writer.add_summary(Summary(values), step, wall_time)
        finally:
            writer.close()

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Write points, labels and pictures for TensorBoard's projector, as files in the run.

        ``mat``: ``[N, dimensions]``. ``metadata``: a label for each, or several, which
        ``metadata_header`` names. ``label_img``: ``[N, 1 or 3 channels, height, width]``.
        ``tag``: the name.
        """
        step = str(0 if global_step is None else global_step).zfill(5)
        folder = f"{step}/{''.join(_ENCODED.get(letter, letter) for letter in tag)}"
        run = path_of(place(log_dir=self._get_file_writer().get_logdir()))
        if self._file_kind is not NoFileWriter:
            named = Embedding(f"{tag}:{step}", mat, metadata, metadata_header, label_img)
            write_embedding(run, folder, named)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Add the graph of a module of PyTorch, which runs once, in evaluation mode.

        ``input_to_model``: a tensor or a tuple of arguments. ``verbose``: print the graph. Without
        ``use_strict_trace`` the module may return lists and dicts. Raises ImportError without
        PyTorch or TensorBoard, RuntimeError if the module cannot be traced.
        """
        try:
            from runhooks.engines.torch.engine import module_graph

            graph, run_metadata = module_graph(model, input_to_model, verbose, use_strict_trace)
        except ImportError as error:
            raise ImportError(
                "add_graph needs PyTorch and TensorBoard: pip install torch tensorboard"
            ) from error
        writer = self._get_file_writer()
        writer.add_graph(graph)
        writer.add_run_metadata(run_metadata, "step1")

    def add_summary(
        self,
        summary: Summary | Message | bytes,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add ``summary``, of Protocol Buffers or ours: so hooks write with a ``SummaryWriter``."""
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add ``session_log``, of Protocol Buffers or ours."""
        self._get_file_writer().add_session_log(session_log, global_step)

    def flush(self) -> None:
        """Return when everything added before is written, in all sub-runs too."""
        if self.all_writers is not None:
            call_all(writer.flush for writer in self.all_writers.values())

    def close(self) -> None:
        """Flush, and close all files; closing twice is fine."""
        if self.all_writers is not None:
            writers, self.file_writer, self.all_writers = self.all_writers, None, None
            self._sub_runs.clear()
            call_all(writer.close for writer in writers.values())

    def _get_file_writer(self) -> FileWriter:
        """Return the file of the run, a new one after ``close``; PyTorch Lightning calls it."""
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = self._open(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self._start = int(self.purge_step)
                self._started = {self.file_writer.get_logdir()}
                self.file_writer.add_session_log(SessionLog(SessionStatus.START), self._start)
                self.purge_step = None
        return self.file_writer

    def _open_group(self, main_tag: str, tag: str) -> FileWriter:
        directory = f"{self._get_file_writer().get_logdir()}/{main_tag.replace('/', '_')}_{tag}"
        assert self.all_writers is not None, "the line above has opened it"
        writer = self.all_writers.get(directory) or self._open_sub_run(directory)
        self.all_writers[directory] = self._sub_runs[main_tag, tag] = writer
        return writer

    def _open_sub_run(self, directory: str) -> FileWriter:
        """Return a file in ``directory``; what an interrupted run has left there is dropped."""
        writer = self._open(directory)
        if self._start is not None and directory not in self._started:
            self._started.add(directory)
            writer.add_session_log(SessionLog(SessionStatus.START), self._start)
        return writer

    def _open(self, directory: str | os.PathLike[str]) -> FileWriter:
        return self._file_kind(directory, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, value: Value | list[Value], global_step: Any, walltime: float | None) -> None:
        summary = Summary(value if isinstance(value, list) else [value])
        for one in summary:
            text_tag(one.tag)
        self.add_summary(summary, global_step, walltime)


def _default_directory(comment: str) -> str:
    started = datetime.now().strftime("%b%d_%H-%M-%S")
    return str(Path("runs", f"{started}_{socket.gethostname()}{comment}"))


def _kept(tag: str, value: Any) -> Any:
    if getattr(value, "is_cpu", False) and value.numel() == 1:
        value = value.item()  # a tensor of PyTorch, which nobody has to wait for
    if type(value) in NUMBERS:
        return value
    if not isinstance(value, str):
        return kept_number(tag, value)
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"the value of scalar {tag!r} must be a number, got {value!r}") from None


def _chart(title: str, chart: Sequence[Any]) -> list[str] | Margin:
    kind, tags = chart
    if kind != "Margin":
        return list(tags)
    if len(tags) != len(Margin._fields):
        raise ValueError(
            f"the margin chart {title!r} must have three tags, of a value, its lower and its upper "
            f"bound, got {tags!r}"
        )
    return Margin(*tags)


def _drawn(figure: Any, close: bool) -> NDArray[np.uint8]:
    try:
        import matplotlib.pyplot as plt
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("add_figure needs matplotlib: pip install matplotlib") from error
    if not isinstance(figure, Figure):
        raise TypeError(f"figure must be a figure of matplotlib or a list of some, got {figure!r}")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    shown: Any = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    pixels: NDArray[np.uint8] = np.asarray(shown)[:, :, :3].copy()
    if close:
        plt.close(figure)
    return pixels
