from typing import Any

from runhooks.contract import SessionRunArgs as SessionRunArgs
from runhooks.contract import SessionRunContext as SessionRunContext
from runhooks.contract import SessionRunHook as SessionRunHook
from runhooks.contract import SessionRunValues as SessionRunValues
from runhooks.hooks import CheckpointSaverHook as CheckpointSaverHook
from runhooks.hooks import CheckpointSaverListener as CheckpointSaverListener
from runhooks.hooks import FeedFnHook as FeedFnHook
from runhooks.hooks import FinalOpsHook as FinalOpsHook
from runhooks.hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from runhooks.hooks import LoggingTensorHook as LoggingTensorHook
from runhooks.hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from runhooks.hooks import NanTensorHook as NanTensorHook
from runhooks.hooks import ProfilerHook as ProfilerHook
from runhooks.hooks import StepCounterHook as StepCounterHook
from runhooks.hooks import StopAtStepHook as StopAtStepHook
from runhooks.hooks import SummarySaverHook as SummarySaverHook
from runhooks.trigger import SecondOrStepTimer as SecondOrStepTimer

experimental: Any
