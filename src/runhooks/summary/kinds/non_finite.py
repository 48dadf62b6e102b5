"""What the log says of numbers that cannot be shown, once for each kind and tag."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

_logger = logging.getLogger("runhooks")
_warned: set[tuple[str, ...]] = set()
_ROUNDING = 0.01


def warn_of_non_finite(kind: str, tag: str, nans: int, infinities: int, fate: str) -> None:
    """Log how many there were, if any, and what became of them: ``fate``."""
    if (nans or infinities) and (kind, tag) not in _warned:
        _warned.add((kind, tag))
        _logger.warning(
            "%s %r has %d NaN and %d infinite values, %s (said once for a tag)",
            kind,
            tag,
            nans,
            infinities,
            fate,
        )


def warn_of_range(kind: str, tag: str, numbers: NDArray[Any], span: str, fate: str) -> None:
    """Log if any of ``numbers`` are clearly beyond 0 to 1, called ``span``, and their ``fate``."""
    if numbers.size and (kind, tag, span) not in _warned:
        least, most = numbers.min(), numbers.max()
        if least < -_ROUNDING or most > 1 + _ROUNDING:
            _warned.add((kind, tag, span))
            _logger.warning(
                "%s %r has values from %g to %g, beyond %s: %s (said once for a tag)",
                *(kind, tag, least, most, span, fate),
            )


def finite_in(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> NDArray[np.bool_]:
    """Return which of ``numbers`` are finite, and log what becomes of those that are not."""
    finite: NDArray[np.bool_] = np.isfinite(numbers)
    if not finite.all():
        nans = int(np.count_nonzero(np.isnan(numbers)))
        warn_of_non_finite(kind, tag, nans, int(finite.size - finite.sum()) - nans, fate)
    return finite
