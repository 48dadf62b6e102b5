from runhooks.tensorboard.event_accumulator import EventAccumulator as EventAccumulator
from runhooks.tensorboard.file_writer import FileWriter as FileWriter
from runhooks.tensorboard.summary_writer import SummaryWriter as SummaryWriter
