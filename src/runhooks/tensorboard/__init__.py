"""``runhooks.tensorboard``: the names of other TensorBoard writers, one import changed.

    from runhooks.tensorboard import SummaryWriter  # torch.utils.tensorboard, tensorboardX

It needs no PyTorch, TensorFlow or Protocol Buffers, but for what is theirs.
"""

from runhooks.tensorboard.file_writer import FileWriter
from runhooks.tensorboard.summary_writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
