"""Summaries: what values mean to whoever reads an event file, and the writer of such files."""

from runhooks.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    elsewhere=lambda name: (
        ": it is runhooks.tensorboard.SummaryWriter" if name == "SummaryWriter" else ""
    ),
)
