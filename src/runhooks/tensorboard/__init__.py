"""The names of other TensorBoard writers and readers, one import changed.

from runhooks.tensorboard import SummaryWriter      # torch.utils.tensorboard, tensorboardX
from runhooks.tensorboard import metric_writers     # clu
from runhooks.tensorboard import EventAccumulator   # tensorboard.backend.event_processing
"""

from runhooks.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
