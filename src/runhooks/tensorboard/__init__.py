"""``runhooks.tensorboard``: the names of other TensorBoard writers and readers, one import changed.

    from runhooks.tensorboard import SummaryWriter      # torch.utils.tensorboard, tensorboardX
    from runhooks.tensorboard import metric_writers     # clu
    from runhooks.tensorboard import flax               # flax.metrics.tensorboard
    from runhooks.tensorboard import EventAccumulator   # tensorboard.backend.event_processing

None of them needs PyTorch, TensorFlow or Protocol Buffers, but for what is theirs.
"""

from typing import TYPE_CHECKING

from runhooks.lazy import lazily
from runhooks.tensorboard.file_writer import FileWriter
from runhooks.tensorboard.summary_writer import SummaryWriter

# A program that only writes does not load the reader.
if TYPE_CHECKING:
    from runhooks.tensorboard.event_accumulator import EventAccumulator
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {"runhooks.tensorboard.event_accumulator": ["EventAccumulator"]},
    )

__all__ = ["EventAccumulator", "FileWriter", "SummaryWriter"]
