"""The variational autoencoder, as a LightningModule for Lightning's Trainer."""

from __future__ import annotations

import argparse
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from gallery.vae_torch import create, load, loss_of, report, sample, test_step


class Module(pl.LightningModule):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        objects = create(args)
        self.model, self.optimizer = objects["model"], objects["optimizer"]

    def configure_optimizers(self) -> Any:
        return self.optimizer

    def training_step(self, images: Tensor) -> Tensor:
        logits, mean, log_variance = self.model(images)
        loss = loss_of(logits, images, mean, log_variance)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        report(self.current_epoch + 1, self.trainer.callback_metrics["loss_epoch"].item())

    def validation_step(self, images: Tensor, batch_idx: int) -> None:
        tested = test_step(self.model, images)
        self.log("val_loss", tested["loss"], batch_size=len(images))
        if batch_idx == 0:
            self.draw("reconstructed", tested["pictures"])

    def on_validation_epoch_end(self) -> None:
        self.draw("sampled", sample(self.model))

    def draw(self, tag: str, picture: Tensor) -> None:
        board: Any = self.logger.experiment
        board.add_images(tag, picture, self.global_step, dataformats="NHWC")


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    train_loader, test_loader = load(args.batch_size)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
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
    trainer.fit(Module(args), train_loader, test_loader, ckpt_path="last")
