"""Loops over PyTorch: ignite's, Lightning's and Keras's, with as many handlers as our hooks."""

from __future__ import annotations

import logging
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver

from bench.measure import NEVER, Loop

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # of versions, and of what it is not given

HANDLERS = 5
Step = Callable[..., Any]


class Rounds:
    """Batches for a loop that somebody else owns, which is held between the rounds.

    It runs in a thread of its own; that is switched to and from once a round.
    """

    def __init__(self, batch: Any, run: Callable[[Rounds], object]) -> None:
        self._batch = batch
        self._run = run
        self._left = 0
        self._go, self._done = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def __len__(self) -> int:
        return NEVER

    def __iter__(self) -> Iterator[Any]:
        while True:
            for _ in range(self._left):
                yield self._batch
            self._done.set()
            self._go.wait()
            self._go.clear()

    def loop(self, times: int) -> None:
        """Let it go on for so many steps, and wait for it."""
        self._left = times
        self._done.clear()
        self._go.set()
        self._done.wait()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        self._go.wait()
        self._go.clear()
        try:
            self._run(self)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
            self._done.set()


def ignite(step: Step, batch: Any, parts: dict[str, Any], handlers: int = HANDLERS) -> Loop:
    """``Engine`` with a checkpoint and handlers of the user's, ``every=`` many steps."""
    engine = Engine(lambda _, batch: step(*batch))
    often = Events.ITERATION_COMPLETED(every=NEVER)
    saver = DiskSaver(tempfile.mkdtemp(), require_empty=False)
    engine.add_event_handler(often, Checkpoint(parts, saver))
    for _ in range(handlers - 1):
        engine.add_event_handler(often, print)
    return Rounds(batch, lambda rounds: engine.run(rounds, max_epochs=1, epoch_length=NEVER)).loop


class Module(pl.LightningModule):
    """Calls the step as it is: the optimizer is the user's affair."""

    def __init__(self, step: Step, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._step = step
        self._optimizer = optimizer

    def configure_optimizers(self) -> Any:
        return self._optimizer

    def training_step(self, batch: Any) -> None:
        self._step(*batch)


class Every(pl.Callback):
    """The callback of one's own that Lightning's documentation shows."""

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % NEVER == 0:
            print(outputs)


def lightning(
    step: Step, batch: Any, optimizer: torch.optim.Optimizer, callbacks: int = HANDLERS
) -> Loop:
    """``Trainer`` with a checkpoint and callbacks of the user's, no logger, no bar."""
    folder = tempfile.mkdtemp()
    saver = pl.callbacks.ModelCheckpoint(Path(folder), every_n_train_steps=NEVER)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saver, *(Every() for _ in range(callbacks - 1))],
        default_root_dir=folder,
    )
    return Rounds(batch, lambda rounds: trainer.fit(Module(step, optimizer), rounds)).loop


def keras(step: Step, batch: Any) -> Loop:
    """``fit`` with five callbacks of the user's, no bar; Keras calls the step as it is."""
    import keras

    class Model(keras.Model):
        def call(self, number: Any) -> Any:
            return number

        def train_step(self, data: Any) -> dict[str, Any]:
            step(*batch)
            return {}

    class Every(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (batch + 1) % NEVER == 0:
                print(logs)

    model = Model()
    model.compile()
    callbacks = [Every() for _ in range(HANDLERS)]

    def fit(rounds: Rounds) -> None:
        numbers = ((np.zeros((1, 1), np.float32),) for _ in rounds)  # the step has its batch
        model.fit(numbers, steps_per_epoch=NEVER, verbose=0, callbacks=callbacks)

    return Rounds(batch, fit).loop
