"""``EventAccumulator``: TensorBoard's reader of event files, on runhooks' own."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.format.proto import as_bytes, fields
from runhooks.events.reading.messages import (
    META_GRAPH_DEF,
    TAGGED_RUN_METADATA,
    TENSOR,
    Metadata,
    parse_value,
)
from runhooks.events.reading.tensor import parse_tensor, tensor_array
from runhooks.events.reading.values import decode_message
from runhooks.stores import hidden
from runhooks.stores.path import AnyPath
from runhooks.tensorboard.event_source import (
    AUDIO,
    HISTOGRAMS,
    IMAGES,
    SCALARS,
    TENSORS,
    EventSource,
)


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


#: Basis points, of 10000: the middle, and one, one and a half and more deviations around it.
NORMAL_BASIS_POINTS = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)


def quantiles(
    histogram: HistogramValue, basis_points: Sequence[float] = NORMAL_BASIS_POINTS
) -> list[tuple[float, float]]:
    """Return each of ``basis_points``, ascending, and the number below which so many are."""
    counts = np.asarray(histogram.bucket, np.float64)
    if not histogram.num:
        return [(point, 0.0) for point in basis_points]
    reached = (counts * basis_points[-1] / (counts.sum() or 1.0)).cumsum()
    bins = np.searchsorted(reached, basis_points, "right").tolist()
    return [
        (point, _number_at(histogram, point, at, reached) if at < len(reached) else histogram.max)
        for point, at in zip(basis_points, bins, strict=True)
    ]


def _number_at(
    histogram: HistogramValue, point: float, at: int, reached: NDArray[np.float64]
) -> float:
    """Return the number in bucket ``at`` below which ``point`` are, if they lie evenly in it."""
    limits = histogram.bucket_limit
    before = float(reached[at - 1]) if at else 0.0
    left = max(limits[at - 1], histogram.min) if before else histogram.min
    right = min(limits[at], histogram.max)
    return left + (point - before) * (right - left) / (float(reached[at]) - before)


def kept_in_reservoir(count: int, size: int, keep_last: bool = True) -> list[int]:
    """Return the indices of the items that stay, in order, of ``count`` that come one by one.

    Each item has the same chance; which ones it hits is always the same.

    Args:
        count: How many items come.
        size: How many stay at most; 0: all.
        keep_last: Whether the last item always stays.
    """
    if not size or count <= size:
        return list(range(count))
    draw = random.Random(0).randint
    kept = list(range(size))
    for index in range(size, count):
        place = draw(0, index)
        if place < size:
            kept.pop(place)
            kept.append(index)
        elif keep_last:
            kept[-1] = index
    return kept


COMPRESSED_HISTOGRAMS = "distributions"
GRAPH, META_GRAPH, RUN_METADATA = "graph", "meta_graph", "run_metadata"
_KINDS = (SCALARS, HISTOGRAMS, COMPRESSED_HISTOGRAMS, IMAGES, AUDIO, TENSORS)
_ALL = 0
_FLOAT, _DOUBLE = 1, 2
_SOURCE_METADATA = 10


class EventAccumulator:
    """The contents of the event files of one directory, or of one file, after ``Reload``.

    It has the methods of TensorBoard's ``EventAccumulator``. Where that one keeps a sample, 10,000
    scalars of a tag and 1 histogram, this one keeps all, unless ``size_guidance`` says otherwise.
    Tags are sorted. A restarted session drops tensors too, and a damaged record is skipped.

    Args:
        path: The directory, without those in it, or the file.
        size_guidance: How many points of a tag to keep, by type of data: ``"scalars"``,
            ``"histograms"``, ``"distributions"``, ``"images"``, ``"audio"``, ``"tensors"``. 0 or
            ``"all"`` and types that are left out: all. A number: a sample, the one that TensorBoard
            takes, with the last point in it; after a restart, one of the points that are left.
            ``"all"`` alone or None: all of every type.
        compression_bps: The basis points of ``CompressedHistograms``, ascending.
        purge_orphaned_data: Whether a session that restarts at a step drops what was written from
            that step on before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        size_guidance: Mapping[str, int | str] | str | None = None,
        compression_bps: Sequence[float] = NORMAL_BASIS_POINTS,
        purge_orphaned_data: bool = True,
    ) -> None:
        self.path = hidden(os.fspath(path))
        self.purge_orphaned_data = purge_orphaned_data
        self._basis_points = compression_bps
        self._sizes = _sizes(size_guidance)
        self._source = EventSource(path, purge_orphaned_data)

    def Reload(self) -> Self:  # noqa: N802 (all names are TensorBoard's)
        """Read what was written since, and return itself.

        Raises:
            FileNotFoundError: There is nothing at ``path``.
        """
        self._source.reload()
        return self

    def Tags(self) -> dict[str, Any]:  # noqa: N802
        """Return the tags by type of data, and whether there is a graph and a metagraph."""
        tags: dict[str, Any] = {
            kind: self._source.tags(kind) for kind in (IMAGES, AUDIO, HISTOGRAMS, SCALARS, TENSORS)
        }
        tags[COMPRESSED_HISTOGRAMS] = tags[HISTOGRAMS]
        tags[GRAPH] = self._graph() is not None
        tags[META_GRAPH] = bool(self._source.messages(META_GRAPH_DEF))
        tags[RUN_METADATA] = list(self._run_metadata())
        return tags

    def Scalars(self, tag: str) -> list[ScalarEvent]:  # noqa: N802
        """Return the numbers of ``tag``. Raises KeyError, as those below, if there is none."""
        steps, values, wall_times = self._source.scalars(tag)
        size = self._sizes[SCALARS]
        if size and len(steps) > size:
            kept = np.array(kept_in_reservoir(len(steps), size))
            steps, values, wall_times = steps[kept], values[kept], wall_times[kept]
        rows = zip(wall_times.tolist(), steps.tolist(), values.tolist(), strict=True)
        with _without_collections():
            return list(map(ScalarEvent._make, rows))

    def Histograms(self, tag: str) -> list[HistogramEvent]:  # noqa: N802
        """Return the histograms of ``tag``."""
        return self._histograms(tag, HISTOGRAMS)

    def CompressedHistograms(self, tag: str) -> list[CompressedHistogramEvent]:  # noqa: N802
        """Return the histograms of ``tag`` as some quantiles of each."""
        return [
            CompressedHistogramEvent(wall_time, step, quantiles(histogram, self._basis_points))
            for wall_time, step, histogram in self._histograms(tag, COMPRESSED_HISTOGRAMS)
        ]

    def Images(self, tag: str) -> list[ImageEvent]:  # noqa: N802
        """Return the images of ``tag``."""
        return [
            ImageEvent(wall_time, step, image.encoded, image.width, image.height)
            for wall_time, step, (image,) in self._decoded(IMAGES, IMAGES, tag)
        ]

    def Audio(self, tag: str) -> list[AudioEvent]:  # noqa: N802
        """Return the sounds of ``tag``."""
        return [
            AudioEvent(
                wall_time, step, sound.encoded, sound.content_type, sound.sample_rate, sound.frames
            )
            for wall_time, step, (sound,) in self._decoded(AUDIO, AUDIO, tag)
        ]

    def Tensors(self, tag: str) -> list[TensorEvent]:  # noqa: N802
        """Return the tensors of ``tag``: whatever TensorFlow 2 writes, and texts."""
        if self._source.place(TENSORS, tag).kind == "scalar":
            return self._scalar_tensors(tag)
        return [
            TensorEvent(wall_time, step, _tensor(message))
            for wall_time, step, message in self._sampled(TENSORS, TENSORS, tag)
        ]

    def Graph(self) -> Any:  # noqa: N802
        """Return the last graph, a ``GraphDef`` of Protocol Buffers.

        Raises:
            ValueError: There is none.
            ImportError: Neither TensorBoard nor TensorFlow is installed.
        """
        return _message("graph_pb2", "GraphDef", self._graph(), "graph")

    def MetaGraph(self) -> Any:  # noqa: N802
        """Return the last metagraph, a ``MetaGraphDef``. Raises as ``Graph``."""
        found = self._source.messages(META_GRAPH_DEF)
        return _message("meta_graph_pb2", "MetaGraphDef", found[-1] if found else None, "metagraph")

    def RunMetadata(self, tag: str) -> Any:  # noqa: N802
        """Return the last ``RunMetadata`` of ``tag``. Raises as ``Graph``."""
        found = self._run_metadata().get(tag)
        return _message("config_pb2", "RunMetadata", found, f"run metadata with the tag {tag!r}")

    def FirstEventTimestamp(self) -> float:  # noqa: N802
        """Return the time of the first event, in seconds since the epoch.

        Raises:
            ValueError: There is none.
        """
        event = self._source.first_event()
        if not event:
            raise ValueError(f"there is no event in {self.path!r}")
        return float(event[1])

    def GetSourceWriter(self) -> str | None:  # noqa: N802
        """Return what wrote the first event, or None if it does not say so."""
        said = self._source.first_event().get(_SOURCE_METADATA)
        writers = (
            [as_bytes(field.value).decode() for field in fields(said)]
            if isinstance(said, bytes)
            else []
        )
        return writers[-1] if writers else None

    def SummaryMetadata(self, tag: str) -> TagMetadata:  # noqa: N802
        """Return what was written about ``tag`` first. Raises KeyError if nothing was."""
        found = self._source.metadata(tag)
        if found == Metadata():
            raise KeyError(tag)
        data = PluginData(found.plugin, found.content)
        return TagMetadata(data, found.display_name, found.description)

    def PluginTagToContent(self, plugin_name: str) -> dict[str, bytes]:  # noqa: N802
        """Return what ``plugin_name`` knows of its tags. Raises KeyError if it has none."""
        found = {
            tag: metadata.content
            for tag, metadata in self._source.all_metadata().items()
            if metadata.plugin == plugin_name
        }
        if not found:
            raise KeyError(f"no tag belongs to the plugin {plugin_name!r}")
        return found

    def PluginAssets(self, plugin_name: str) -> list[str]:  # noqa: N802
        """Return the names of the files of ``plugin_name``."""
        folder = self._assets(plugin_name)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def RetrievePluginAsset(self, plugin_name: str, asset_name: str) -> str:  # noqa: N802
        """Return the text of a file of ``plugin_name``. Raises KeyError if there is none."""
        path = self._assets(plugin_name) / asset_name
        if not path.is_file():
            raise KeyError(f"the plugin {plugin_name!r} has no file {asset_name!r}")
        return path.read_text(encoding="utf-8")

    def _assets(self, plugin_name: str) -> AnyPath:
        return self._source.path / f"plugins/{plugin_name}"

    def _histograms(self, tag: str, guidance: str) -> list[HistogramEvent]:
        return [
            HistogramEvent(
                wall_time,
                step,
                HistogramValue._make([*found[:5], found.limits.tolist(), found.counts.tolist()]),
            )
            for wall_time, step, found in self._decoded(HISTOGRAMS, guidance, tag)
        ]

    def _decoded(self, kind: str, guidance: str, tag: str) -> list[tuple[float, int, Any]]:
        place, metadata = self._source.place(kind, tag), self._source.metadata(tag)
        return [
            (wall_time, step, decode_message(message, place.kind, metadata))
            for wall_time, step, message in self._sampled(kind, guidance, tag)
        ]

    def _sampled(self, kind: str, guidance: str, tag: str) -> list[tuple[float, int, bytes]]:
        points = self._source.points(kind, tag)
        keep_last = guidance != COMPRESSED_HISTOGRAMS
        kept = kept_in_reservoir(len(points), self._sizes[guidance], keep_last)
        chosen = (points[index] for index in kept)
        return [(point.wall_time, point.step, message) for point, message in chosen]

    def _scalar_tensors(self, tag: str) -> list[TensorEvent]:
        steps, values, wall_times = self._source.scalars(tag, TENSORS)
        narrow = values.astype(np.float32)
        is_float = bool(np.array_equal(narrow, values, equal_nan=True))
        column, dtype = (narrow, _FLOAT) if is_float else (values, _DOUBLE)
        return [
            TensorEvent(
                float(wall_times[index]),
                int(steps[index]),
                TensorProto(dtype, np.array(column[index])),
            )
            for index in kept_in_reservoir(len(steps), self._sizes[TENSORS])
        ]

    def _graph(self) -> bytes | None:
        graph = self._source.graph()
        if graph is not None:
            return graph
        metagraphs = self._source.messages(META_GRAPH_DEF)
        found = (
            [field for field in fields(metagraphs[-1]) if field.number == 2] if metagraphs else []
        )
        return as_bytes(found[-1].value) if found else None

    def _run_metadata(self) -> dict[str, bytes]:
        found = {}
        for message in self._source.messages(TAGGED_RUN_METADATA):
            parts = {field.number: as_bytes(field.value) for field in fields(message)}
            found[parts.get(1, b"").decode()] = parts.get(2, b"")
        return found


@contextmanager
def _without_collections() -> Iterator[None]:
    """Let the garbage collector rest: of many new objects none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _sizes(guidance: Mapping[str, int | str] | str | None) -> dict[str, int]:
    if guidance is None or guidance == "all":
        return dict.fromkeys(_KINDS, _ALL)
    if not isinstance(guidance, Mapping):
        raise TypeError(f"size_guidance must be a dict of sizes by type or 'all', got {guidance!r}")
    sizes = dict.fromkeys(_KINDS, _ALL)
    for kind, size in guidance.items():
        if size != "all":
            arguments.whole(0, **{f"size_guidance[{kind!r}]": size})
            sizes[kind] = int(size)
    return sizes


def _tensor(message: bytes) -> TensorProto:
    content = parse_value(message, 0, len(message)).content
    if content is None or content.number != TENSOR:
        raise ValueError("the value of a summary must be a tensor")
    parsed = parse_tensor(message, content.begin, content.end)
    array = tensor_array(message, content.begin, content.end)
    is_widened = array.dtype == np.float32  # as bfloat16 is, which NumPy does not have
    return TensorProto(_FLOAT if is_widened else parsed.dtype, array)


def _message(module: str, name: str, encoded: bytes | None, what: str) -> Any:
    if encoded is None:
        raise ValueError(f"there is no {what} in what was read")
    try:
        kind = getattr(import_module(f"tensorboard.compat.proto.{module}"), name)
    except ImportError as error:
        raise ImportError(
            f"a {name} is a message of TensorBoard's: pip install tensorboard"
        ) from error
    return kind.FromString(encoded)
