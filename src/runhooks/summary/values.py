"""Scalars, histograms, tensors and texts, kept as users give them, then written.

Field numbers and types are those of TensorFlow's ``tensor.proto`` and ``types.proto``.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runhooks import arguments
from runhooks.arrays import host_form, is_array, snapshot, to_numpy
from runhooks.arrays.histogram import HistogramCounts, histogram_counts
from runhooks.arrays.registry import library_of
from runhooks.arrays.values import NUMBERS, read_number
from runhooks.events import Message
from runhooks.events.format import proto
from runhooks.events.format.event import scalar_entry
from runhooks.summary.message import (
    DataClass,
    SummaryMetadata,
    Value,
    checked_tag,
    entry,
    nbytes_of,
    serialized,
    tensor_entry,
)

#: Raises, with the first argument as the subject, for a shape or dtype.
Check = Callable[[str, tuple[int, ...], np.dtype[Any]], None]

_logger = logging.getLogger("runhooks")
_warned: set[tuple[str, str, str]] = set()
_NOT_REAL = "cUSOMmT"


@dataclass(slots=True)
class Kept:
    """Real numbers as they were given, in an array of any library or in lists."""

    what: str
    values: Any
    check: Check | None

    def nbytes(self) -> int:
        return nbytes_of(self.values)

    def read(self) -> NDArray[Any]:
        """Return an array of NumPy; waits for the device. Raises as ``keep``."""
        array = to_numpy(self.values)
        self.verify(self.values, array.shape, array.dtype)
        return array

    def verify(self, given: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype.kind in _NOT_REAL or dtype.names:
            raise TypeError(
                f"{self.what} must hold real numbers, got {type(given).__name__} of dtype {dtype}"
            )
        if self.check is not None:
            self.check(self.what, shape, dtype)


def keep(what: str, values: Any, check: Check | None = None) -> Kept:
    """Return ``values`` as they are now; does not wait for a device.

    ``check`` is called when their shape and dtype are known: now, or when they are read.

    Raises TypeError or ValueError, beginning with ``what``, if they are no array of real numbers.
    """
    now, form = _kept_form(what, values)
    kept = Kept(what, now, check)
    if form is not None:
        kept.verify(values, *form)
    return kept


def _kept_form(what: str, values: Any) -> tuple[Any, tuple[tuple[int, ...], np.dtype[Any]] | None]:
    try:
        now = snapshot(values)
        return now, host_form(now)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}: {error}") from None


def numbered(stem: str, batch: NDArray[Any], most: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield up to ``most`` elements of ``batch`` with the tags that TensorFlow gives them."""
    for index, element in enumerate(batch[:most]):
        yield stem if most == 1 else f"{stem}/{index}", element


def as_float(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)


def finite_in(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> NDArray[np.bool_]:
    """Return which ``numbers`` are finite; warn of the others and their ``fate``."""
    finite: NDArray[np.bool_] = np.isfinite(numbers)
    if not finite.all():
        nans = int(np.count_nonzero(np.isnan(numbers)))
        _warn_of_non_finite(kind, tag, nans, int(finite.size - finite.sum()) - nans, fate)
    return finite


def _warn_of_non_finite(kind: str, tag: str, nans: int, infinities: int, fate: str) -> None:
    warn_once(kind, tag, "%d NaN and %d infinite values, %s", nans, infinities, fate)


def warn_once(kind: str, tag: str, text: str, *given: object) -> None:
    if (kind, tag, text) not in _warned:
        _warned.add((kind, tag, text))
        _logger.warning("%s %r has %s (said once for a tag)", kind, tag, text % given)


_SIMPLE_VALUE = 2


def scalar_value(
    tag: str, value: Any, metadata: SummaryMetadata | None = None, dtype: str | None = None
) -> Value:
    """Return a number, written as float32 and read only then; NaN and infinities are kept.

    Args:
        tag: Its tag.
        value: A number, or an array of size 1.
        metadata: How TensorBoard shows it.
        dtype: ``"float32"`` or ``"float64"``, to write it as a tensor with ``metadata``, as
            TensorFlow 2 does.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is not of size 1.
    """
    kept = kept_number(tag, value)
    if metadata is None:
        return Value(tag, kept, encode_scalar)
    return Value(tag, (kept, metadata, dtype), _encode_described)


def encode_scalar(tag: str, value: Any) -> bytes:
    """Return the entry of ``value``, which is from ``kept_number``."""
    return scalar_entry(tag, read_number(value))


def kept_number(tag: str, value: Any) -> Any:
    """Return ``value`` as it is now; raise as ``scalar_value``."""
    if type(value) in NUMBERS:
        return value
    number = library_of(value).number(value)
    if number is not None:
        return number
    if not is_array(value) and hasattr(value, "__float__"):  # a Decimal or Fraction
        return float(value)
    if value is None or isinstance(value, str | bytes | Mapping):
        raise TypeError(f"the value of scalar {tag!r} must be a number, got {_described(value)}")
    return keep(f"the value of scalar {tag!r}", value, _check_single).values


def kept_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be a dict of numbers by tag, got {values!r}")
    return {checked_tag(tag): kept_number(tag, value) for tag, value in values.items()}


def _check_single(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if math.prod(shape) != 1:
        raise ValueError(f"{what} must be a single number, got an array of shape {shape}")


def _described(value: Any) -> str:
    if not isinstance(value, Mapping):
        return repr(value)
    return (
        f"a {type(value).__name__} with {list(value)}: write each with scalar, or all with scalars"
    )


def _encode_described(tag: str, data: tuple[Any, SummaryMetadata, str | None]) -> bytes:
    kept, metadata, dtype = data
    number = read_number(kept)
    if dtype is None:
        return entry(tag, proto.float_field(_SIMPLE_VALUE, number), metadata)
    with np.errstate(over="ignore"):
        array = np.array(number).astype(dtype)
    return tensor_entry(tag, encode_tensor(tag, array), metadata)


_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_STRING = 7
_STRINGS_IN = "USTO"  # kinds of arrays
_TEXT = SummaryMetadata("text", data_class=DataClass.DATA_CLASS_TENSOR).SerializeToString()
_TYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
    "float8_e5m2": 24,
    "float8_e4m3fn": 25,
}


def tensor_value(tag: str, value: Any, metadata: Message | bytes = b"") -> Value:
    """Return an array as it is.

    Args:
        tag: Its tag.
        value: Of any shape: numbers, bfloat16 and complex ones too, or str or bytes.
        metadata: A ``SummaryMetadata``, or the bytes of one.

    Raises:
        TypeError: ``value`` has another dtype, or ``metadata`` is neither.
        ValueError: ``metadata`` is bytes of something else.
    """
    rule = f"the metadata of {tag!r} must be a SummaryMetadata or the bytes of one"
    encoded = serialized(metadata, rule)
    now, form = _kept_form(_name(tag), value)
    if form is not None and form[1].kind in _STRINGS_IN:  # they are on the host
        now = encode_tensor(tag, to_numpy(now))
    elif form is not None:
        _check_dtype(tag, form[1])
    return Value(tag, (now, encoded), encode_kept_tensor)


def text_value(tag: str, text: Any) -> Value:
    """Return a text, which TensorBoard shows as Markdown.

    Args:
        tag: Its tag.
        text: A str, or a list or array; TensorBoard shows one or two dimensions as a table.

    Raises:
        TypeError: An element is not a str.
    """
    texts = encode_texts(np.asarray(text, object), f"text summary {tag!r} must be made of str")
    return Value(tag, (texts, _TEXT), encode_kept_tensor)


def encode_tensor(tag: str, array: NDArray[Any]) -> bytes:
    if array.dtype.kind in _STRINGS_IN:
        return encode_texts(array, f"{_name(tag)} must hold numbers, str or bytes")
    _check_dtype(tag, array.dtype)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _tensor(_TYPES[array.dtype.name], array.shape, proto.bytes_field(_CONTENT, content))


def encode_texts(array: NDArray[Any], rule: str) -> bytes:
    """Return ``array`` of str or bytes as a ``TensorProto``, or raise TypeError with ``rule``."""
    return encode_strings(array.shape, (_utf8(element, rule) for element in array.flat))


def encode_strings(shape: tuple[int, ...], strings: Iterable[bytes]) -> bytes:
    """Return ``strings`` as a ``TensorProto``."""
    content = b"".join(proto.bytes_field(_STRINGS, string) for string in strings)
    return _tensor(_STRING, shape, content)


def _tensor(dtype: int, shape: tuple[int, ...], content: bytes) -> bytes:
    sizes = b"".join(proto.bytes_field(2, proto.varint_field(1, size)) for size in shape)
    return b"".join((proto.varint_field(_DTYPE, dtype), proto.bytes_field(_SHAPE, sizes), content))


def encode_kept_tensor(tag: str, data: tuple[Any, bytes]) -> bytes:
    """Return an entry of ``data``: an array, or a ``TensorProto`` as bytes, and metadata."""
    value, metadata = data
    tensor = value if isinstance(value, bytes) else encode_tensor(tag, to_numpy(value))
    return tensor_entry(tag, tensor, metadata)


def _name(tag: str) -> str:
    return f"tensor summary {tag!r}"


def _check_dtype(tag: str, dtype: np.dtype[Any]) -> None:
    if dtype.name not in _TYPES and dtype != np.longdouble:
        raise TypeError(f"{_name(tag)} must hold numbers, str or bytes, got dtype {dtype}")


def _utf8(element: object, rule: str) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise TypeError(f"{rule}, got {element!r}")


# --- Histograms

#: At most; any data fit in 510, one for each sign and exponent.
WRITTEN_BUCKETS = 512

_HISTO = 5
_SIGN = 0x8000
_INFINITY = 0x7F80  # upper half of +Inf; beyond it is only NaN
_MANTISSA_BITS = 7  # in the upper half of a float32

Bins: TypeAlias = int | str | Sequence[float] | NDArray[Any]


def histogram_value(
    tag: str, values: Any, bins: Bins | None = None, max_bins: int | None = None
) -> Value:
    """Return a histogram of ``values``.

    Args:
        tag: Its tag. NaN and infinities are left out, and counted in the scalars ``tag/nan_count``
            and ``tag/inf_count`` and in one warning per tag.
        values: Real numbers of any shape and dtype, or ``HistogramCounts``.
        bins: What ``numpy.histogram`` takes. None: up to 512 buckets, whose width grows with the
            numbers in them.
        max_bins: Neighbours are put together beyond this.

    Raises:
        TypeError: ``values`` are not real numbers.
        ValueError: ``bins`` is something else, or ``max_bins`` is below 1.
    """
    if max_bins is not None:
        arguments.whole(max_bins=max_bins)
    is_counted = isinstance(values, HistogramCounts)
    kept = values if is_counted else keep(f"histogram summary {tag!r}", values)
    return Value(tag, (kept, _checked_bins(tag, bins), max_bins), _encode_histogram)


def counted_histogram_value(
    tag: str,
    smallest: float,
    largest: float,
    num: float,
    total: float,
    sum_squares: float,
    limits: ArrayLike,
    counts: ArrayLike,
) -> Value:
    """Return a histogram that was counted; ``limits``, right edges, and ``counts`` are ``[n]``."""
    right, held = np.array(limits, np.float64).ravel(), np.array(counts, np.float64).ravel()
    if len(right) != len(held):
        raise ValueError(
            f"the histogram {tag!r} must have one count for each limit, "
            f"got {len(right)} limits and {len(held)} counts"
        )
    moments = tuple(map(float, (smallest, largest, num, total, sum_squares)))
    return Value(tag, (moments, right, held), _encode_counted)


def _checked_bins(tag: str, bins: Bins | None) -> Bins | None:
    if bins is None:
        return None
    given = bins if isinstance(bins, str | int) else np.array(bins)
    try:
        np.histogram_bin_edges(np.zeros(1), given)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"bins of histogram summary {tag!r} must be a number, a rule such as 'auto', or "
            f"ascending edges, got {bins!r}: {error}"
        ) from None
    return given


def _encode_histogram(
    tag: str, data: tuple[Kept | HistogramCounts, Bins | None, int | None]
) -> bytes:
    kept, bins, max_bins = data
    if bins is None or isinstance(kept, HistogramCounts):
        found = kept if isinstance(kept, HistogramCounts) else histogram_counts(kept.read())
        bits = to_numpy(found.counts).astype(np.int64)
        nans, infinities = _non_finite(bits)
        counts, limits = _written_buckets(bits)
        extremes = (found.min, found.max) if counts.size else (0.0, 0.0)
        moments = (*extremes, counts.sum(), found.sum, found.sum_squares)
    else:
        numbers = kept.read().ravel().astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        nans = int(np.isnan(numbers).sum())
        infinities = len(numbers) - len(finite) - nans
        counts, limits = np.histogram(finite, bins)
        counts = np.append(0, counts)  # below the first edge
        extremes = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        moments = (*extremes, len(finite), finite.sum(), np.square(finite).sum())
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = fewer(counts, limits, max_bins)
    said = b""
    if nans or infinities:
        _warn_of_non_finite("histogram", tag, nans, infinities, "left out")
        said = encode_scalar(f"{tag}/nan_count", nans)
        said += encode_scalar(f"{tag}/inf_count", infinities)
    return _encode_counted(tag, (moments, limits, counts)) + said


def _encode_counted(tag: str, data: tuple[tuple[float, ...], NDArray[Any], NDArray[Any]]) -> bytes:
    moments, limits, counts = data
    fields = [proto.double_field(number, float(it)) for number, it in enumerate(moments, 1)]
    fields += [proto.packed_doubles_field(6, limits), proto.packed_doubles_field(7, counts)]
    return entry(tag, proto.bytes_field(_HISTO, b"".join(fields)))


def fewer(
    counts: NDArray[Any], limits: NDArray[Any], most: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return at most ``most`` counts, of neighbours together, and their right edges."""
    together = -(-len(counts) // most)
    first = np.arange(0, len(counts), together)
    last = np.minimum(first + together, len(counts)) - 1
    return np.add.reduceat(counts, first), limits[last]


def _non_finite(bits: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many are NaN, and how many infinite."""
    positive, negative = bits[_INFINITY:_SIGN], bits[_SIGN + _INFINITY :]
    nans = int(positive[1:].sum() + negative[1:].sum())
    return nans, int(positive[0] + negative[0])


def _written_buckets(bits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts to write and their limits, ascending."""
    negative, positive = bits[_SIGN : _SIGN + _INFINITY], bits[:_INFINITY]
    all_counts = np.concatenate((negative[::-1], positive))
    filled = np.flatnonzero(all_counts != 0)
    fewest = ((filled.size - 1) // WRITTEN_BUCKETS).bit_length() if filled.size else 0
    for shift in range(fewest, _MANTISSA_BITS + 1):
        coarse = filled >> shift
        first = np.flatnonzero(np.diff(coarse, prepend=-1))
        buckets = coarse[first]
        # Empty buckets between two filled ones are written as one.
        gaps = buckets[1:][np.diff(buckets) > 1] - 1
        if buckets.size + gaps.size <= WRITTEN_BUCKETS:
            break
    written = np.sort(np.concatenate((buckets, gaps)))
    counts = np.zeros(written.size, np.int64)
    if filled.size:
        counts[np.searchsorted(written, buckets)] = np.add.reduceat(all_counts[filled], first)
    return counts, _limits()[((written + 1) << shift) - 1]


@functools.cache
def _limits() -> NDArray[np.float64]:
    """Return the right edges of all buckets, ascending."""
    halves = np.arange(_INFINITY + 1, dtype=np.uint32)
    magnitudes = (halves << 16).view(np.float32).astype(np.float64)
    magnitudes[-1] = sys.float_info.max  # in place of infinity
    return np.concatenate((-magnitudes[-2::-1], magnitudes[1:])) + 0.0
