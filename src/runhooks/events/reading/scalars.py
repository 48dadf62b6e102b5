"""``Scalars``: the points of one scalar tag, as columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Scalars(NamedTuple):
    """All points of a scalar tag, in the order in which they were written.

    ``steps``: int64 ``[n]``. ``values``: float64 ``[n]``. ``wall_times``: float64 ``[n]``, seconds
    since the epoch.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]
