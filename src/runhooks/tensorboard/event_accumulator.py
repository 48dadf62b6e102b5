"""``EventAccumulator``: TensorBoard's reader of event files, on runhooks' own."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from runhooks.events.place import place
from runhooks.events.reading.contents import RunContents
from runhooks.events.reading.find import find_files
from runhooks.events.reading.messages import TENSOR, Wanted, parse_value
from runhooks.events.reading.rows import RowDecoders
from runhooks.events.reading.values import parse_tensor, tensor_array
from runhooks.stores.path import StorePath, path_of


class ScalarEvent(NamedTuple):
    wall_time: float
    step: int
    value: float


class HistogramValue(NamedTuple):
    """How numbers are distributed: ``bucket[i]`` of them are up to ``bucket_limit[i]``."""

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    bucket_limit: list[float]
    bucket: list[float]


class HistogramEvent(NamedTuple):
    wall_time: float
    step: int
    histogram_value: HistogramValue


class ImageEvent(NamedTuple):
    wall_time: float
    step: int
    encoded_image_string: bytes
    width: int
    height: int


class AudioEvent(NamedTuple):
    wall_time: float
    step: int
    encoded_audio_string: bytes
    content_type: str
    sample_rate: float
    length_frames: int


class Dimension(NamedTuple):
    size: int
    name: str = ""


class TensorShape(NamedTuple):
    dim: list[Dimension]
    unknown_rank: bool = False


class TensorProto:
    """A tensor, with the fields that ``make_ndarray`` of TensorBoard reads."""

    version_number = 0
    #: The numbers are in ``tensor_content`` instead.
    float_val = double_val = int_val = int64_val = half_val = bool_val = ()
    scomplex_val = dcomplex_val = uint32_val = uint64_val = ()

    def __init__(self, dtype: int, array: NDArray[Any]) -> None:
        self._array = array
        self.dtype = dtype
        self.tensor_shape = TensorShape([Dimension(size) for size in array.shape])
        is_text = array.dtype == object
        self.string_val: list[bytes] = list(array.flat) if is_text else []
        self.tensor_content = b"" if is_text else array.tobytes()

    def numpy(self) -> NDArray[Any]:
        """Return it as an array; strings as bytes objects."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._array, dtype) if copy else np.asarray(self._array, dtype)

    def __repr__(self) -> str:
        return f"TensorProto({self._array!r})"


class TensorEvent(NamedTuple):
    wall_time: float
    step: int
    tensor_proto: TensorProto


_FLOAT, _DOUBLE = 1, 2

# Types of data, and their kinds for ``events.read``. If the tag belongs to the plugin of that name,
# they were written as tensors.
_KINDS = {"images": "image", "audio": "audio", "histograms": "histogram", "scalars": "scalar"}
_TENSORS = "tensors"


class EventAccumulator:
    """The event files of one directory, not of those in it, or one file, after ``Reload``.

    Tags are sorted, and a damaged record is skipped. With ``purge_orphaned_data`` a session that
    restarts at a step drops what was written from that step on before, tensors too.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        size_guidance: Any = None,
        *,
        purge_orphaned_data: bool = True,
    ) -> None:
        self.path = os.fspath(path)
        self._place = path if isinstance(path, StorePath) else path_of(place(path=path))
        self._contents = RunContents(RowDecoders(Wanted()), purge_orphaned_data)
        self._tags: dict[str, dict[str, str]] | None = None

    def Reload(self) -> Self:  # noqa: N802
        """Read what was written since, and return itself.

        Raises:
            FileNotFoundError: There is nothing at ``path``.
            OSError: ``path`` is a file that cannot be read.
        """
        files = find_files(self._place)
        self._contents.update(files, skip_unreadable=files != [self._place])
        found = [("scalar", tag) for tag in self._contents.scalar_tags()]
        found += self._contents.point_tags()
        tags: dict[str, dict[str, str]] = {of: {} for of in (*_KINDS, _TENSORS)}
        for kind, tag in sorted(found, key=lambda it: it[1]):
            if kind != "hparams":
                tags[self._type(kind, tag)][tag] = kind
        self._tags = tags
        return self

    def Tags(self) -> dict[str, list[str]]:  # noqa: N802
        """Return the tags by type of data."""
        found = self._tags or {}
        return {of: list(found.get(of, ())) for of in (*_KINDS, _TENSORS)}

    def Scalars(self, tag: str) -> list[ScalarEvent]:  # noqa: N802
        """Return the numbers of ``tag``. Raises KeyError, as those below, if there is none."""
        self._find("scalars", tag)
        steps, values, wall_times = (column.tolist() for column in self._contents.scalars(tag))
        # Looking for garbage takes five times as long as this.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return list(map(ScalarEvent._make, zip(wall_times, steps, values, strict=True)))
        finally:
            if was_enabled:
                gc.enable()

    def Histograms(self, tag: str) -> list[HistogramEvent]:  # noqa: N802
        """Return the histograms of ``tag``."""
        return [
            HistogramEvent(
                at, step, HistogramValue._make([*it[:5], it.limits.tolist(), it.counts.tolist()])
            )
            for step, at, it in self._points("histograms", tag)
        ]

    def Images(self, tag: str) -> list[ImageEvent]:  # noqa: N802
        """Return the images of ``tag``."""
        return [
            ImageEvent(at, step, it.encoded, it.width, it.height)
            for step, at, value in self._points("images", tag)
            for it in value
        ]

    def Audio(self, tag: str) -> list[AudioEvent]:  # noqa: N802
        """Return the clips of audio of ``tag``."""
        return [
            AudioEvent(at, step, it.encoded, it.content_type, it.sample_rate, it.frames)
            for step, at, value in self._points("audio", tag)
            for it in value
        ]

    def Tensors(self, tag: str) -> list[TensorEvent]:  # noqa: N802
        """Return the tensors of ``tag``: whatever TensorFlow 2 writes, and texts."""
        kind = self._find(_TENSORS, tag)
        if kind != "scalar":
            return [
                TensorEvent(point.wall_time, point.step, tensor)
                for point, message in self._contents.encoded_points(kind, tag)
                if (tensor := _tensor(message)) is not None
            ]
        steps, values, wall_times = self._contents.scalars(tag)
        narrow = values.astype(np.float32)
        is_float = np.array_equal(narrow, values, equal_nan=True)
        column, dtype = (narrow, _FLOAT) if is_float else (values, _DOUBLE)
        tensors = (TensorProto(dtype, np.array(number)) for number in column)
        return list(map(TensorEvent, wall_times.tolist(), steps.tolist(), tensors))

    def _type(self, kind: str, tag: str) -> str:
        of = next((of for of, known in _KINDS.items() if known == kind), _TENSORS)
        return _TENSORS if self._contents.metadata.of(tag).plugin == of else of

    def _points(self, of: str, tag: str) -> Sequence[Any]:
        return self._contents.points(self._find(of, tag), tag)

    def _find(self, of: str, tag: str) -> str:
        """Return the kind of ``tag``, which has data of the type ``of``; raise KeyError."""
        if self._tags is None:
            raise KeyError(f"no {of} have the tag {tag!r} yet: call Reload() first")
        as_tensors = self._tags[_TENSORS].get(tag)
        if as_tensors is not None and as_tensors == _KINDS.get(of):
            return as_tensors
        if tag not in self._tags[of]:
            known = ", ".join(map(repr, self._tags[of])) or "none at all"
            raise KeyError(f"no {of} have the tag {tag!r}, among {known}")
        return self._tags[of][tag]


def _tensor(message: bytes) -> TensorProto | None:
    content = parse_value(message, 0, len(message)).content
    if content is None or content.number != TENSOR:
        return None  # of the same tag, by another writer
    parsed = parse_tensor(message, content.begin, content.end)
    array = tensor_array(message, content.begin, content.end)
    is_widened = array.dtype == np.float32  # as bfloat16 is, which NumPy lacks
    return TensorProto(_FLOAT if is_widened else parsed.dtype, array)
