"""The GPT on two ranks, as a LightningModule for Lightning's Trainer, started by torchrun."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from gallery.gpt_torch import MICRO_BATCHES, Parts, batches, create, load, loss_of, test_step


class MicroBatches(IterableDataset[Parts]):
    """What a rank learns from, from ``step`` on."""

    def __init__(self, text: Tensor, rank: int, step: int) -> None:
        self.batches = batches(text, rank, step)

    def __iter__(self) -> Iterator[Parts]:
        for texts, targets in self.batches:
            yield from zip(texts, targets, strict=True)


class Module(pl.LightningModule):
    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        super().__init__()
        objects = create(args, rank)
        self.model, self.optimizer = objects["model"], objects["optimizer"]
        self.scheduler = objects["scheduler"]
        self.text, self.tested = load()

    def configure_optimizers(self) -> Any:
        scheduler = {"scheduler": self.scheduler, "interval": "step"}
        return {"optimizer": self.optimizer, "lr_scheduler": scheduler}

    def train_dataloader(self) -> Any:
        data = MicroBatches(self.text, self.global_rank, self.global_step)
        return DataLoader(data, batch_size=None)

    def val_dataloader(self) -> Any:
        tested: Any = [self.tested]
        return DataLoader(tested, batch_size=None)

    def training_step(self, parts: Parts) -> Tensor:
        loss = loss_of(self.model, *parts)
        self.log("loss", loss)
        self.log("learning_rate", self.scheduler.get_last_lr()[0])
        return loss

    def validation_step(self, parts: Parts) -> None:
        tested = test_step(self.model, *parts)
        self.log("val_loss", tested["loss"], batch_size=len(parts[0]), sync_dist=True)
        board: Any = self.logger.experiment
        board.add_text("sample", tested["sample"], self.global_step)


def train(args: argparse.Namespace) -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=args.steps,
        accumulate_grad_batches=MICRO_BATCHES,
        gradient_clip_val=1.0,
        val_check_interval=args.test_steps * MICRO_BATCHES,
        logger=TensorBoardLogger(args.dir, name="", version=""),
        callbacks=[
            ModelCheckpoint(args.dir, "best", monitor="val_loss"),
            ModelCheckpoint(args.dir, save_last="link"),
        ],
        log_every_n_steps=10,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(args, trainer.global_rank), ckpt_path="last")
