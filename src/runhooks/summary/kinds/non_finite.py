"""What the log says of NaN and infinities, once for each kind and tag."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

_logger = logging.getLogger("runhooks")
_warned: set[tuple[str, str]] = set()


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


def finite_in(kind: str, tag: str, numbers: NDArray[Any], fate: str) -> NDArray[np.bool_]:
    """Return which of ``numbers`` are finite, and log what becomes of those that are not."""
    finite: NDArray[np.bool_] = np.isfinite(numbers)
    if not finite.all():
        nans = int(np.count_nonzero(np.isnan(numbers)))
        warn_of_non_finite(kind, tag, nans, int(finite.size - finite.sum()) - nans, fate)
    return finite
