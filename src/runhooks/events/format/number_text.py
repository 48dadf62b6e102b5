"""Columns of numbers as text: what ``repr`` makes of each, thousands at a time.

A text is a row of bytes in which those equal to ``PAD`` are left out, so that the texts of a column
are an array, and lines are such arrays side by side.

The shortest decimal number that is nearest to a double has at most 17 digits. As a double times a
power of ten up to 10**22 is exactly the sum of two doubles (T. J. Dekker, 1971), its 17 digits and
the distance of any decimal number from it are known exactly. Only the nearest multiple of 1, of 10
and of 100 can be the shortest, for two doubles are less than 100 of the last digit apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

#: Occurs in no text in UTF-8.
PAD = 0xFF

_FOURS = np.array([b"%04d" % number for number in range(10_000)]).view(np.uint32)
_POWERS = np.array([10**place for place in range(20)], np.uint64)
_FLOAT_POWERS = np.array([float(10**place) for place in range(23)])
_ROUNDED_POWERS = np.array([float(f"1e{place}") for place in range(-3, 16)])
_DIGITS = 17
_LEAST, _MOST = 1e-4, 1e16  # between them ``repr`` writes no exponent
_LEAST_POINT, _MOST_POINT = 1, 20  # digits after the point
_SPLIT = float(2**27 + 1)
_NEARLY = 1e-6
_MANTISSA = np.uint64((1 << 52) - 1)
_MINUS, _POINT, _ZERO = b"-.0"

Text = NDArray[np.uint8]


def texts(lines: Sequence[bytes]) -> Text:
    """Return ``lines``, none of which contains ``PAD``, as rows: uint8 ``[n, longest]``."""
    width = max(map(len, lines), default=0)
    pad = bytes([PAD])
    joined = b"".join(line.ljust(width, pad) for line in lines)
    return np.frombuffer(joined, np.uint8).reshape(len(lines), width)


def int_texts(numbers: NDArray[np.int64]) -> Text:
    """Return ``numbers``, int64 ``[n]``, in decimal: uint8 ``[n, longest]``."""
    magnitudes = np.where(numbers < 0, -numbers, numbers).view(np.uint64)
    return np.concatenate([_signs(numbers < 0), _whole(magnitudes)], axis=1)


def float_texts(numbers: NDArray[np.float64], other: Callable[[float], str] = repr) -> Text:
    """Return ``numbers``, float64 ``[n]``, as ``repr`` writes them: uint8 ``[n, longest]``.

    ``other``: called for those that are not finite, and for any others.
    """
    size = np.abs(numbers)
    usual = (size >= _LEAST) & (size < _MOST)
    decimals, after, sure = _shortest(np.where(usual, size, 1.5))
    usual &= sure
    unit = _POWERS.take(np.minimum(after, _DIGITS + 1))
    whole = decimals // unit
    found = np.concatenate(
        [
            _signs(numbers < 0),
            _whole(whole),
            np.full((len(numbers), 1), _POINT, np.uint8),
            _fraction(decimals - whole * unit, after),
        ],
        axis=1,
    )
    return found if usual.all() else _with_others(found, numbers, ~usual, other)


def _with_others(
    found: Text,
    numbers: NDArray[np.float64],
    which: NDArray[np.bool_],
    other: Callable[[float], str],
) -> Text:
    others = texts([other(number).encode() for number in numbers[which].tolist()])
    width = max(found.shape[1], others.shape[1])
    wide = np.full((len(numbers), width), PAD, np.uint8)
    wide[:, : found.shape[1]] = found
    wide[which] = PAD
    wide[which, : others.shape[1]] = others
    return wide


def _shortest(
    numbers: NDArray[np.float64],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return each number, from 1e-4 to 1e16, as ``decimal / 10**after``; and where it is sure."""
    after = _DIGITS - 1 + 3 - np.searchsorted(_ROUNDED_POWERS, numbers, "right") + 1
    power = _FLOAT_POWERS.take(after)
    high, low = _product(numbers, power)
    rest = np.rint(low)
    digits = high.astype(np.int64) + rest.astype(np.int64)
    rest = low - rest
    reach = 0.5 * np.spacing(numbers) * power  # of what is read as the same number
    sure = np.abs(rest) < 0.5 - _NEARLY
    # Below a power of two the next number is nearer.
    sure &= (numbers.view(np.uint64) & _MANTISSA) != 0
    chosen = digits
    for unit in (10, 100):
        last = digits % unit
        up = last + rest > unit / 2
        distance = np.abs(np.where(up, unit - last, -last) - rest)
        sure &= (np.abs(distance - reach) > _NEARLY) & (np.abs(distance - unit / 2) > _NEARLY)
        chosen = np.where(distance < reach, digits - last + unit * up, chosen)
    return chosen.view(np.uint64), after, sure


def _product(
    numbers: NDArray[np.float64], factors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two numbers whose sum is exactly the product, the first as near as can be."""
    product = numbers * factors
    (a, b), (c, d) = _halves(numbers), _halves(factors)
    return product, ((a * c - product) + a * d + b * c) + b * d


def _halves(numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scaled = numbers * _SPLIT
    high = scaled - (scaled - numbers)
    return high, numbers - high


def _signs(negative: NDArray[np.bool_]) -> Text:
    return np.where(negative, np.uint8(_MINUS), np.uint8(PAD))[:, None]


def _whole(numbers: NDArray[np.uint64]) -> Text:
    counts = np.searchsorted(_POWERS[1:], numbers, "right") + 1
    width = int(counts.max(initial=1))
    found = _with_zeros(numbers, width)
    found[np.arange(width) < (width - counts)[:, None]] = PAD
    return found


def _fraction(numbers: NDArray[np.uint64], after: NDArray[np.int64]) -> Text:
    """Return ``after`` digits of each number, without zeros at the end but the first."""
    found = _with_zeros(numbers, _MOST_POINT)
    first = _MOST_POINT - after
    last = _MOST_POINT - 1 - (found[:, ::-1] != _ZERO).argmax(axis=1)
    last = np.where(numbers == 0, first, last)
    begin, end = int(first.min(initial=_MOST_POINT - 1)), int(last.max(initial=0)) + 1
    places = np.arange(begin, end)
    found = found[:, begin:end]
    found[(places < first[:, None]) | (places > last[:, None])] = PAD
    return found


def _with_zeros(numbers: NDArray[np.uint64], width: int) -> Text:
    """Return the last ``width`` digits."""
    groups = -(-width // 4)
    fours = np.empty((len(numbers), groups), np.uint32)
    for place in reversed(range(groups)):
        rest = numbers // np.uint64(10_000)
        # Signed, as indices of NumPy 1 have to be.
        fours[:, place] = _FOURS.take((numbers - rest * np.uint64(10_000)).view(np.int64))
        numbers = rest
    return fours.view(np.uint8)[:, 4 * groups - width :]
