"""Arrays of real numbers: checked when they are given, and read when they are written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

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


def kept_form(what: str, values: Any) -> tuple[Any, Form | None]:
    """Return ``values`` as they are now, and their shape and dtype if these are known.

    Raises:
        TypeError: They cannot be kept.
        ValueError: They are a list whose elements have different shapes.
    """
    try:
        now = snapshot(values)
        return now, host_form(now)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None


def keep(what: str, values: Any, check: Check | None = None) -> Any:
    """Return ``values`` as they are now, to be read later; does not wait for a device.

    Args:
        what: What they are for, such as ``"image summary 'x'"``; errors begin with it.
        values: Real numbers, in an array of any library or in lists.
        check: Called with their shape and dtype, if these are known without reading the values.

    Raises:
        TypeError: They are not real numbers, or cannot be kept.
        ValueError: They are a list whose elements have different shapes.
    """
    now, form = kept_form(what, values)
    if form is not None:
        _check_real(what, form[1], values)
        if check is not None:
            check(what, *form)
    return now


def read(what: str, kept: Any, check: Check | None = None) -> NDArray[Any]:
    """Return what ``keep`` returned as an array of NumPy, bfloat16 too; waits for the device.

    Raises:
        TypeError, ValueError: As ``keep``, for what it could not know.
    """
    array = to_numpy(kept)
    _check_real(what, array.dtype, kept)
    if check is not None:
        check(what, array.shape, array.dtype)
    return array


def _check_real(what: str, dtype: np.dtype[Any], values: Any) -> None:
    if dtype.kind in _NOT_REAL or dtype.names:
        raise TypeError(
            f"{what} must hold real numbers, got {type(values).__name__} of dtype {dtype}"
        )


def as_float(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` as float32, or as float64 if its numbers may need that."""
    return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)


def warn_of_non_finite(kind: str, tag: str, nans: int, infinities: int, fate: str) -> None:
    """Warn, once for each kind and tag, of numbers that are not finite.

    Args:
        kind: The kind of the summary.
        tag: Its tag.
        nans: How many are NaN.
        infinities: How many are infinite.
        fate: What became of them, such as ``"left out"``.
    """
    if nans or infinities:
        _warn(kind, tag, "%d NaN and %d infinite values, %s", nans, infinities, fate)


def warn_of_range(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> None:
    """Warn, once for each kind and tag, if any of ``numbers`` is clearly outside 0 to 1."""
    if numbers.size:
        least, most = numbers.min(), numbers.max()
        if least < -_ROUNDING or most > 1 + _ROUNDING:
            _warn(kind, tag, "values from %g to %g, beyond 0.0 to 1.0: %s", least, most, fate)


def warn_of_dark(kind: str, tag: str, colors: NDArray[Any]) -> None:
    """Warn, once for each kind and tag, if ``colors``, which should be 0 to 255, are at most 1."""
    if colors.size and 0 < colors.max() <= 1:
        text = "colors of at most %g, which TensorBoard shows as black: give 0 to 255"
        _warn(kind, tag, text, colors.max())


def _warn(kind: str, tag: str, text: str, *given: object) -> None:
    if (kind, tag, text) not in _warned:
        _warned.add((kind, tag, text))
        _logger.warning("%s %r has %s (said once for a tag)", kind, tag, text % given)


def finite_in(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> NDArray[np.bool_]:
    """Return which of ``numbers`` are finite; warn of the others as ``warn_of_non_finite`` does."""
    finite: NDArray[np.bool_] = np.isfinite(numbers)
    if not finite.all():
        nans = int(np.count_nonzero(np.isnan(numbers)))
        warn_of_non_finite(kind, tag, nans, int(finite.size - finite.sum()) - nans, fate)
    return finite
