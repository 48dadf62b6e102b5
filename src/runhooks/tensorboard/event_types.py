"""What ``EventAccumulator`` returns: the fields of TensorBoard's own types, in named tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ScalarEvent(NamedTuple):
    """A number at a step."""

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
    """A histogram at a step."""

    wall_time: float
    step: int
    histogram_value: HistogramValue


class CompressedHistogramEvent(NamedTuple):
    """Some quantiles of a histogram: pairs of basis points, 0 to 10000, and values."""

    wall_time: float
    step: int
    compressed_histogram_values: list[tuple[float, float]]


class ImageEvent(NamedTuple):
    """An image at a step, a whole file."""

    wall_time: float
    step: int
    encoded_image_string: bytes
    width: int
    height: int


class AudioEvent(NamedTuple):
    """A sound at a step, a whole file."""

    wall_time: float
    step: int
    encoded_audio_string: bytes
    content_type: str
    sample_rate: float
    length_frames: int


class PluginData(NamedTuple):
    """What a plugin of TensorBoard knows of a tag."""

    plugin_name: str
    content: bytes


class TagMetadata(NamedTuple):
    """How TensorBoard shows a tag, with the fields of its ``SummaryMetadata``."""

    plugin_data: PluginData
    display_name: str
    summary_description: str


class Dimension(NamedTuple):
    """The size of an axis."""

    size: int
    name: str = ""


class TensorShape(NamedTuple):
    """The sizes of all axes."""

    dim: list[Dimension]
    unknown_rank: bool = False


class TensorProto:
    """A tensor, with the fields that ``make_ndarray`` of TensorBoard or TensorFlow reads.

    ``numpy()`` returns it as an array without either of them.
    """

    version_number = 0
    #: The numbers are in ``tensor_content`` instead.
    float_val: Sequence[float] = ()
    double_val: Sequence[float] = ()
    int_val: Sequence[int] = ()
    int64_val: Sequence[int] = ()
    half_val: Sequence[int] = ()
    bool_val: Sequence[bool] = ()
    scomplex_val: Sequence[float] = ()
    dcomplex_val: Sequence[float] = ()
    uint32_val: Sequence[int] = ()
    uint64_val: Sequence[int] = ()

    def __init__(self, dtype: int, array: NDArray[Any]) -> None:
        self._array = array
        self.dtype = dtype
        self.tensor_shape = TensorShape([Dimension(size) for size in array.shape])
        is_text = array.dtype == object
        self.string_val: list[bytes] = list(array.flat) if is_text else []
        self.tensor_content = b"" if is_text else array.tobytes()

    def numpy(self) -> NDArray[Any]:
        """Return it as an array; of bytes objects if it is a tensor of strings."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._array, dtype) if copy else np.asarray(self._array, dtype)

    def __repr__(self) -> str:
        return f"TensorProto({self._array!r})"


class TensorEvent(NamedTuple):
    """A tensor at a step."""

    wall_time: float
    step: int
    tensor_proto: TensorProto
