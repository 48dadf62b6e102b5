"""``PictureMethods``: images, figures, videos and sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.summary.kinds.audio import sound_value
from runhooks.summary.kinds.image_grid import Boxes, check_pillow, grid_value
from runhooks.summary.kinds.video import video_value
from runhooks.tensorboard.run_files import RunFiles, refusals


class PictureMethods(RunFiles):
    """The methods of a ``SummaryWriter`` for what is seen and heard."""

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image.

        Args:
            tag: Its tag.
            img_tensor: uint8 (0 to 255), or another dtype of the range 0.0 to 1.0; what is beyond
                is cut off, with a warning once for each tag, and a pixel that is not finite is
                red. With 1 (gray), 3 (RGB) or 4 (RGBA) channels.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
            dataformats: What its axes are: ``"CHW"``, ``"HWC"``, ``"HW"``, or as of ``add_images``.
        """
        with refusals():
            value = grid_value(tag, img_tensor, dataformats)
        self._add(value, global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add a batch of images as one, 8 in a row.

        Args:
            tag: Their tag.
            img_tensor: The images, as for ``add_image``; or a list of images of one shape.
            global_step: Their step; None: 0.
            walltime: Their time, in seconds since the epoch; None: now.
            dataformats: What the axes are: ``"NCHW"`` or ``"NHWC"``; of a list, those of one image.
        """
        if isinstance(img_tensor, list) and "N" not in dataformats.upper():
            dataformats = f"N{dataformats}"
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: str | Sequence[str] | None = None,
    ) -> None:
        """Add an image and draw boxes on it.

        Args:
            tag: Its tag.
            img_tensor: The image, as for ``add_image``.
            box_tensor: ``[n, 4]``: xmin, ymin, xmax and ymax of each box, in pixels.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
            rescale: By how much the image is enlarged afterwards.
            dataformats: What its axes are, as for ``add_image``.
            labels: A text for each box. They are left out if there is not one for each.

        Raises:
            ImportError: Pillow is not installed.
        """
        check_pillow("add_image_with_boxes")
        texts = [labels] if isinstance(labels, str) else labels
        if texts is not None and len(texts) != len(box_tensor):
            texts = None
        with refusals():
            boxes = Boxes(box_tensor, None if texts is None else list(texts), rescale)
            value = grid_value(tag, img_tensor, dataformats, boxes)
        self._add(value, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a figure of matplotlib as an image.

        Args:
            tag: Its tag.
            figure: A figure, or a list of figures of one size.
            global_step: Its step; None: 0.
            close: Whether to close it in ``pyplot``.
            walltime: Its time, in seconds since the epoch; None: now.

        Raises:
            ImportError: matplotlib is not installed.
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
        """Add a batch of videos as one animated GIF.

        Args:
            tag: Their tag.
            vid_tensor: ``[N, frames, channels, height, width]`` with 1 (gray) or 3 (RGB) channels,
                otherwise as for ``add_image``.
            global_step: Their step; None: 0.
            fps: Frames a second.
            walltime: Their time, in seconds since the epoch; None: now.
            dataformats: What the axes are: the letters of ``"NTCHW"`` in any order.

        Raises:
            ImportError: Pillow is not installed.
        """
        with refusals():
            value = video_value(tag, vid_tensor, fps, dataformats)
        self._add(value, global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add a clip of sound.

        Args:
            tag: Its tag.
            snd_tensor: ``[frames]``, or ``[frames, channels]`` with 1 or 2 of them, of the range
                -1.0 to 1.0; what is beyond is cut off.
            global_step: Its step; None: 0.
            sample_rate: Frames a second.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        with refusals():
            value = sound_value(tag, snd_tensor, sample_rate)
        self._add(value, global_step, walltime)


def _drawn(figure: Any, close: bool) -> NDArray[np.uint8]:
    """Return what ``figure`` shows, uint8 ``[height, width, 3]``."""
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
