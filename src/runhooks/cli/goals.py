"""``Goals``: whether the lowest or the highest value of a curve is its best."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from runhooks.cli.command_error import CommandError
from runhooks.cli.runs import matches, no_such

Goal = Literal["min", "max"]

_LOW = """
    bpc bpd cer cost divergence err error errors fid kl loss losses mae mape mse nll perplexity ppl
    regret rmse wer
"""
_HIGH = """
    acc accuracy ap auc auroc bleu correct dice f1 iou map miou mrr ndcg precision psnr r2 recall
    return reward rouge score ssim
"""


class Goals:
    """What is best is told by a word in the tag, as in ``train/loss`` or ``top1_accuracy``.

    ``lower``, ``higher``: patterns of tags for which it is said; ``higher`` has the last word.
    Raises CommandError for a pattern that is in both.
    """

    def __init__(self, lower: Sequence[str] | None, higher: Sequence[str] | None) -> None:
        self._lower = lower or ()
        self._higher = higher or ()
        if both := [it for it in self._lower if it in self._higher]:
            raise CommandError(f"{both[0]!r} is given to both --min and --max")

    def check(self, tags: Collection[str]) -> None:
        """Raise CommandError for a pattern that is none of ``tags``."""
        for option, patterns in (("--min", self._lower), ("--max", self._higher)):
            for pattern in patterns:
                if not any(matches(tag, pattern) for tag in tags):
                    raise CommandError(
                        f"{option}: {no_such('scalar', pattern, sorted(tags), ' in the table')}"
                    )

    def of(self, tag: str) -> Goal | None:
        """Return what is best of ``tag``; None if nothing tells, or words contradict each other."""
        if any(matches(tag, pattern) for pattern in self._higher):
            return "max"
        if any(matches(tag, pattern) for pattern in self._lower):
            return "min"
        words = set(re.findall(r"[a-z]+\d?", re.sub(r"([a-z])([A-Z])", r"\1 \2", tag).lower()))
        low, high = not words.isdisjoint(_LOW.split()), not words.isdisjoint(_HIGH.split())
        if low == high:
            return None
        return "min" if low else "max"
