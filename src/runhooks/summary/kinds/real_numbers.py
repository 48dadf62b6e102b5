"""Arrays of real numbers: checked when they are given, and read when they are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays import host_form, snapshot, to_numpy

#: Raises for a shape and dtype that a kind of summary does not take; its first argument names it.
Check = Callable[[str, tuple[int, ...], np.dtype[Any]], None]

Form = tuple[tuple[int, ...], np.dtype[Any]]

_logger = logging.getLogger("runhooks")
_warned: set[tuple[str, str, str]] = set()
_ROUNDING = 0.01
_NOT_REAL = "cUSOMmT"


class Kept(NamedTuple):
    """Real numbers as they were when they were given, in an array of any library or in lists."""

    what: str
    values: Any
    check: Check | None

    def read(self) -> NDArray[Any]:
        """Return an array of NumPy, bfloat16 too; waits for the device. Raises as ``keep``."""
        array = to_numpy(self.values)
        _check_real(self.what, array.dtype, self.values)
        if self.check is not None:
            self.check(self.what, array.shape, array.dtype)
        return array


def keep(what: str, values: Any, check: Check | None = None) -> Kept:
    """Return ``values`` as they are now; does not wait for a device.

    ``check`` is called when their shape and dtype are known: now, or when they are read.

    Raises:
        TypeError: They are not real numbers, or cannot be kept. Errors begin with ``what``.
        ValueError: They are a list whose elements have different shapes.
    """
    now, form = kept_form(what, values)
    if form is not None:
        _check_real(what, form[1], values)
        if check is not None:
            check(what, *form)
    return Kept(what, now, check)


def kept_form(what: str, values: Any) -> tuple[Any, Form | None]:
    """Return ``values`` as they are now, and their shape and dtype if known; raise as ``keep``."""
    try:
        now = snapshot(values)
        return now, host_form(now)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}: {error}") from None


def _check_real(what: str, dtype: np.dtype[Any], values: Any) -> None:
    if dtype.kind in _NOT_REAL or dtype.names:
        raise TypeError(
            f"{what} must hold real numbers, got {type(values).__name__} of dtype {dtype}"
        )


def numbered(stem: str, batch: NDArray[Any], most: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield up to ``most`` elements of ``batch`` with the tags that TensorFlow gives them."""
    for index, element in enumerate(batch[:most]):
        yield stem if most == 1 else f"{stem}/{index}", element


def as_float(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` as float32, or as float64 if its numbers may need that."""
    return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)


# Each warns once for a kind and tag.


def warn_of_non_finite(kind: str, tag: str, nans: int, infinities: int, fate: str) -> None:
    """Warn of numbers that are not finite, and of their ``fate``, such as ``"left out"``."""
    if nans or infinities:
        _warn(kind, tag, "%d NaN and %d infinite values, %s", nans, infinities, fate)


def finite_in(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> NDArray[np.bool_]:
    """Return which of ``numbers`` are finite; warn of the others."""
    finite: NDArray[np.bool_] = np.isfinite(numbers)
    if not finite.all():
        nans = int(np.count_nonzero(np.isnan(numbers)))
        warn_of_non_finite(kind, tag, nans, int(finite.size - finite.sum()) - nans, fate)
    return finite


def warn_of_range(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> None:
    """Warn if any of ``numbers`` is clearly outside 0 to 1."""
    if numbers.size:
        least, most = numbers.min(), numbers.max()
        if least < -_ROUNDING or most > 1 + _ROUNDING:
            _warn(kind, tag, "values from %g to %g, beyond 0.0 to 1.0: %s", least, most, fate)


def warn_of_dark(kind: str, tag: str, colors: NDArray[Any]) -> None:
    """Warn if ``colors``, which should be 0 to 255, are at most 1."""
    if colors.size and 0 < colors.max() <= 1:
        text = "colors of at most %g, which TensorBoard shows as black: give 0 to 255"
        _warn(kind, tag, text, colors.max())


def _warn(kind: str, tag: str, text: str, *given: object) -> None:
    if (kind, tag, text) not in _warned:
        _warned.add((kind, tag, text))
        _logger.warning("%s %r has %s (said once for a tag)", kind, tag, text % given)
