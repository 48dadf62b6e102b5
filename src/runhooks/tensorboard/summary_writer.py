"""``SummaryWriter``: the interface of torch's and tensorboardX's, on runhooks' event files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from runhooks import clock
from runhooks.events.place import inside, place
from runhooks.stores.path import path_of
from runhooks.summary import Summary, scalar_value
from runhooks.summary.kinds.histogram import default_edges
from runhooks.summary.kinds.hparams import experiment_values
from runhooks.summary.kinds.projector import Embedding, write_embedding
from runhooks.tensorboard.picture_methods import PictureMethods
from runhooks.tensorboard.plot_methods import PlotMethods
from runhooks.tensorboard.run_files import RunFiles, ScalarMethods, refusals

_ENCODED = {"%": "%25", "/": "%2f", "\\": "%5c"}


class ModelMethods(RunFiles):
    """The methods of a ``SummaryWriter`` for what describes a model."""

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
        """Add hyperparameters and what came of them, in a sub-run of its own.

        Args:
            hparam_dict: bools, numbers, strs, functions (their names) or arrays of one number, by
                name; None is left out.
            metric_dict: Numbers by tag.
            hparam_domain_discrete: All values that a hyperparameter may have, by name.
            run_name: The name of the sub-run; None: the time.
            global_step: The step of the metrics; None: 0.
            name: tensorboardX's word for ``run_name``.
        """
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError(
                "hparam_dict and metric_dict must be dicts of values by name, "
                f"got {hparam_dict!r} and {metric_dict!r}"
            )
        records = experiment_values(hparam_dict, list(metric_dict), hparam_domain_discrete)
        metrics = [scalar_value(tag, value) for tag, value in metric_dict.items()]
        run = self._get_file_writer().get_logdir()
        writer = self._open(inside(run, run_name or name or str(clock.wall())))
        try:
            for value in records + metrics:
                writer.add_summary(Summary([value]), global_step)
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

        Args:
            mat: The points, ``[N, dimensions]``.
            metadata: A label for each; several for each if there is a ``metadata_header``.
            label_img: A picture for each, ``[N, channels, height, width]`` with 1 or 3 channels, as
                for ``add_image``.
            global_step: The step; None: 0.
            tag: The name of the embedding.
            metadata_header: The names of the labels.
        """
        step = str(0 if global_step is None else global_step).zfill(5)
        folder = f"{step}/{''.join(_ENCODED.get(letter, letter) for letter in tag)}"
        run = path_of(place(log_dir=self._get_file_writer().get_logdir()))
        if not self._writes_to_disk:
            return
        named = Embedding(f"{tag}:{step}", mat, metadata, metadata_header, label_img)
        with refusals():
            write_embedding(run, folder, named)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Add the graph of a module of PyTorch.

        Args:
            model: The module; it runs once, in evaluation mode.
            input_to_model: What to call it with: a tensor, or a tuple of them.
            verbose: Whether to print the graph.
            use_strict_trace: As ``strict`` of ``torch.jit.trace``: False lets it return lists and
                dicts.

        Raises:
            ImportError: PyTorch is not installed.
            RuntimeError: The module cannot be traced.
        """
        try:
            from runhooks.engines.torch.module_graph import module_graph
        except ImportError as error:
            raise ImportError("add_graph needs PyTorch: pip install torch") from error
        traced = module_graph(model, input_to_model, verbose, use_strict_trace)
        self._get_file_writer().add_graph(traced)


class SummaryWriter(ScalarMethods, PictureMethods, PlotMethods, ModelMethods):
    """Writes event files in ``log_dir`` with the methods of ``torch.utils.tensorboard``.

    Every method and argument of torch's ``SummaryWriter`` is there, and those that tensorboardX has
    besides; where the two differ, it does what torch's does. What TensorBoard shows is the same.

    Calls return before anything is encoded or written, and do not wait for a device: an array is
    kept as it is at the call, and read in the background. Wrong arguments raise at the call; what
    goes wrong in the background is raised, once, by a later call. NaN and infinities never raise.

    Arrays may be of PyTorch, NumPy, JAX, TensorFlow, or lists of numbers, on any device, bfloat16
    too.

    A step may be whatever ``int`` takes: 7.9 and ``"7"`` are 7. Nor is a tag checked, only that it
    is a str. After ``close`` what is added goes to a new file.

    Args:
        log_dir: The directory; None: ``runs/<time>_<host><comment>``.
        comment: The end of the name of that directory.
        purge_step: TensorBoard drops what was written before from this step on, as after a restart.
        max_queue: Ours never wait for the disk before 500,000 events do; a higher number raises
            that.
        flush_secs: Events are written after 0.2 seconds at the latest, or at once if this is less.
        filename_suffix: The end of the names of event files.
        write_to_disk: False: nothing is written, and no directory is made.
        logdir: tensorboardX's word for ``log_dir``.
        comet_config: None, or ``{"disabled": True}``: nothing is sent to Comet.

    Raises:
        OSError: No file can be made in ``log_dir``.
        TypeError, ValueError: An argument is wrong or out of range.
    """

    @property
    def default_bins(self) -> list[float]:
        """The edges of the bins of ``add_histogram``."""
        edges: list[float] = default_edges().tolist()
        return edges


def _name_methods() -> None:
    """Let Python's errors of arguments name ``SummaryWriter``, not the classes it is made of."""
    for base in SummaryWriter.__mro__[1:-1]:
        for name, method in vars(base).items():
            if isinstance(method, FunctionType):
                method.__qualname__ = f"{SummaryWriter.__qualname__}.{name}"


_name_methods()
