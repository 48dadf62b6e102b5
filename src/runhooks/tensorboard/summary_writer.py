"""``SummaryWriter``: the interface of torch's and tensorboardX's, on runhooks' event files."""

from __future__ import annotations

from types import FunctionType

from runhooks.summary.kinds.binned_histogram import default_edges
from runhooks.tensorboard.model_methods import ModelMethods
from runhooks.tensorboard.picture_methods import PictureMethods
from runhooks.tensorboard.plot_methods import PlotMethods
from runhooks.tensorboard.scalar_methods import ScalarMethods


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
