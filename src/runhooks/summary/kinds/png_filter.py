"""The filters of PNG: what is left of each byte when a neighbour predicts it (w3.org/TR/png).

All is done on flat arrays of bytes, which stay bytes: so a processor takes dozens at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Bytes = NDArray[np.uint8]

_BLOCK = 1 << 16  # bytes at a time, so that what is made on the way takes no fresh memory


def filtered(image: _Bytes) -> _Bytes:
    """Return the rows of ``image``, uint8 ``[height, width, channels]``, ready to be compressed.

    Each begins with the number of its filter: the one that leaves the least.
    """
    height, width, channels = image.shape
    length = width * channels
    # A row with a pixel of zeros before it is all that the neighbours at the border need.
    stride = channels + length
    padded = np.zeros(channels + (height + 1) * stride, np.uint8)
    padded[channels + stride :].reshape(height, stride)[:, channels:] = image.reshape(height, -1)
    rows = np.empty((height, 1 + length), np.uint8)
    step = max(_BLOCK // stride, 1)
    for top in range(0, height, step):
        count = min(step, height - top)
        block = padded[top * stride : channels + (top + count + 1) * stride]
        left = _left_by_each(block, stride, channels).reshape(4, count, stride)
        best = _sizes(left).argmin(axis=0)
        rows[top : top + count, 0] = best + 1
        rows[top : top + count, 1:] = left[best, np.arange(count), channels:]
    return rows


def _left_by_each(block: _Bytes, stride: int, channels: int) -> _Bytes:
    """Return what the filters 1 (sub), 2 (up), 3 (average) and 4 (Paeth) leave of ``block``.

    Its first row and the pixel before that are only the neighbours of the others.
    """
    here, before = block[channels + stride :], block[stride:-channels]
    above, corner = block[channels:-stride], block[: -stride - channels]
    left = np.empty((4, here.size), np.uint8)
    np.subtract(here, before, out=left[0])
    np.subtract(here, above, out=left[1])
    np.subtract(here, (before & above) + ((before ^ above) >> 1), out=left[2])
    np.subtract(here, _paeth(before, above, corner), out=left[3])
    return left


def _sizes(left: _Bytes) -> NDArray[np.uint32]:
    """Return how far from zero the bytes are, as signed ones, in sum over each row."""
    sizes: NDArray[np.uint32] = np.minimum(left, np.negative(left)).sum(axis=2, dtype=np.uint32)
    return sizes


def _paeth(before: _Bytes, above: _Bytes, corner: _Bytes) -> _Bytes:
    """Return whichever of the three is nearest to ``before + above - corner``.

    Where the corner is not between the other two, that is the one farther from it. Where it is,
    the nearer one if it is less than half as far from it as the other, else the corner itself.
    """
    low, high = np.minimum(before, above), np.maximum(before, above)
    from_above = np.maximum(above, corner) - np.minimum(above, corner)
    from_before = np.maximum(before, corner) - np.minimum(before, corner)
    near, far = np.minimum(from_above, from_before), np.maximum(from_above, from_before)
    nearer = _where(from_above <= from_before, before, above)
    between = _where(near > far - near, corner, nearer)
    return _where(corner >= high, low, _where(corner <= low, high, between))


def _where(condition: NDArray[np.bool_], yes: _Bytes, no: _Bytes) -> _Bytes:
    """Return ``np.where(condition, yes, no)``, several times faster."""
    mask = condition.view(np.uint8)
    np.negative(mask, out=mask)
    chosen: _Bytes = no ^ ((yes ^ no) & mask)
    return chosen
