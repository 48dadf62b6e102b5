"""Trains one epoch with other libraries, with a stop in its middle; prints what they tell as JSON.

``python epoch_mean_peers.py FOLDER``: for each library its version, the mean loss at the end of the
epoch, and the batches of the training before the stop and after it. Six batches have the values 0
to 5, which are their losses, too. A training stops after three of them, and another one resumes as
the library documents it.
"""

import json
import logging
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

import ignite.engine
import ignite.metrics
import keras
import lightning
import numpy as np
import torch
import transformers
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

VALUES = [float(it) for it in range(6)]
STOP = 3


class Model(torch.nn.Module):
    """The loss is the value of the batch, whatever the parameter; ``trained`` keeps the batches."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.trained = []

    def forward(self, value):
        self.trained.append(float(value))
        return (value + 0 * self.weight).mean()


class LightningModel(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, index):
        loss = self.model(batch)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def of_lightning(folder, loader):
    """``Trainer.fit(ckpt_path=...)``."""

    def fit(ckpt_path=None, **limits):
        model = LightningModel()
        trainer = lightning.Trainer(
            accelerator="cpu",
            callbacks=[ModelCheckpoint(folder, "{step}", every_n_train_steps=STOP, save_top_k=-1)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **limits,
        )
        trainer.fit(model, loader(VALUES), ckpt_path=ckpt_path)
        return model.model.trained, trainer.callback_metrics.get("loss")

    before, _ = fit(max_steps=STOP)
    after, mean = fit(str(folder / f"step={STOP}.ckpt"), max_epochs=1)
    return float(mean), before, after


def of_ignite(engine_class):
    """``engine.load_state_dict(...)``, then ``run``."""

    def run(state=None):
        model = Model()
        engine = engine_class(lambda engine, batch: model(batch))
        engine.logger.setLevel(logging.CRITICAL)
        ignite.metrics.Average(float).attach(engine, "mean")
        if state is None:
            stop = ignite.engine.Events.ITERATION_COMPLETED(once=STOP)
            engine.add_event_handler(stop, engine.terminate)
        else:
            engine.load_state_dict(state)
        engine.run(DataLoader(VALUES), max_epochs=1)
        return model.trained, engine

    before, engine = run()
    after, engine = run(engine.state_dict())
    return engine.state.metrics["mean"], before, after


def of_transformers(folder):
    """``Trainer.train(resume_from_checkpoint=...)``."""

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return len(VALUES)

        def __getitem__(self, index):
            return {"value": VALUES[index]}

    class LossModel(Model):
        def forward(self, value):
            return {"loss": super().forward(value)}

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(Data())

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            control.should_training_stop = state.global_step == STOP

    def train(checkpoint=None):
        model = LossModel()
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=1,
            num_train_epochs=1,
            logging_strategy="epoch",
            save_strategy="steps",
            save_steps=STOP,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = InOrder(
            model=model,
            args=arguments,
            train_dataset=Data(),
            callbacks=[] if checkpoint else [Stop()],
        )
        trainer.train(resume_from_checkpoint=checkpoint)
        return model.trained, trainer.state.log_history

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    before, _ = train()
    after, log = train(str(folder / f"checkpoint-{STOP}"))
    return [row["loss"] for row in log if "loss" in row][-1], before, after


def of_keras(folder):
    """``BackupAndRestore`` with ``save_freq``, and the same ``fit`` again."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            trained.append(batch)
            if stops and len(trained) == STOP:
                raise KeyboardInterrupt

    def fit():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", lambda value, predicted: value + 0 * predicted)
        x = np.array(VALUES, np.float32)[:, None]
        backup = keras.callbacks.BackupAndRestore(folder, save_freq=STOP)
        return model.fit(
            x, x, batch_size=1, epochs=1, shuffle=False, verbose=0, callbacks=[backup, Stop()]
        )

    trained, stops = [], True
    with suppress(KeyboardInterrupt):
        fit()
    before, trained, stops = trained, [], False
    return fit().history["loss"][-1], before, trained


CASES = {
    "Lightning, DataLoader": (lightning, lambda folder: of_lightning(folder, DataLoader)),
    "Lightning, StatefulDataLoader": (
        lightning,
        lambda folder: of_lightning(folder, StatefulDataLoader),
    ),
    "ignite, Engine": (ignite, lambda _: of_ignite(ignite.engine.Engine)),
    "ignite, DeterministicEngine": (ignite, lambda _: of_ignite(ignite.engine.DeterministicEngine)),
    "Trainer of transformers": (transformers, of_transformers),
    "Keras, BackupAndRestore": (keras, of_keras),
}


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    found = {}
    for number, (name, (library, train)) in enumerate(CASES.items()):
        with redirect_stdout(sys.stderr):
            mean, before, after = train(Path(sys.argv[1]) / str(number))
        found[name] = {"version": library.__version__, "mean": mean, "batches": [before, after]}
    print(json.dumps(found))
