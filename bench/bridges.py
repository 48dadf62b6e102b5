"""What a batch in a framework's loop costs with hooks of which none is due.

Each framework calls its callbacks as it does around a batch, either with the bridge or with an
empty callback instead. Nothing is trained in between.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import runhooks as rh
from bench.measure import NEVER, Contender, Effort, Loop
from bench.table import Table, measured

BUDGET = 2.0  # microseconds over an empty callback
COUNTED = "The bridge counts the batch, keeps its values, and sees whether a hook is due."


def sleeping() -> list[rh.SessionRunHook]:
    return [
        rh.StopAtStepHook(last_step=NEVER),
        rh.LoggingTensorHook(["loss"], every_n_iter=NEVER),
        rh.StepCounterHook(every_n_steps=NEVER, output_dir=tempfile.mkdtemp()),
        rh.NanTensorHook("loss", trigger=rh.Trigger(every_steps=NEVER)),
        rh.MemoryHook(every_n_steps=NEVER, output_dir=tempfile.mkdtemp()),
    ]


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(4)}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).mean()}


def keras() -> Iterator[Contender]:
    import keras as framework

    model = framework.Sequential([framework.Input((4,)), framework.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.make_train_function()

    class Empty(framework.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            pass

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            pass

    base = "Keras: an empty callback"
    for name, callback in (
        (base, Empty()),
        ("Keras: five sleeping hooks", rh.bridges.keras.Hooks(sleeping())),
    ):
        callbacks = framework.callbacks.CallbackList([callback], model=model)
        callbacks.on_train_begin()
        callbacks.on_epoch_begin(0)

        def loop(times: int, callbacks: framework.callbacks.CallbackList = callbacks) -> None:
            for i in range(times):
                callbacks.on_train_batch_begin(i)
                callbacks.on_train_batch_end(i, {"loss": 0.5})

        yield _contender(name, loop, base)


def lightning() -> Iterator[Contender]:
    import lightning as framework

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(framework.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.model(**batch)["loss"]  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    base = "Lightning: an empty callback"
    for name, callback in (
        (base, framework.Callback()),
        ("Lightning: five sleeping hooks", rh.bridges.lightning.Hooks(sleeping())),
    ):
        module = Module()
        trainer = framework.Trainer(
            max_steps=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, torch.utils.data.DataLoader(Numbers()))
        callback.on_train_start(trainer, module)

        def loop(
            times: int,
            callback: framework.Callback = callback,
            trainer: framework.Trainer = trainer,
            module: Module = module,
        ) -> None:
            outputs = {"loss": torch.ones(())}
            progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress
            steps = progress.optimizer.step.total
            for i in range(times):
                callback.on_train_batch_start(trainer, module, None, i)
                steps.completed += 1
                callback.on_train_batch_end(trainer, module, outputs, None, i)

        yield _contender(name, loop, base)


def transformers() -> Iterator[Contender]:
    import transformers as framework

    framework.logging.set_verbosity_error()
    base = "Trainer: an empty callback"
    for name, callback in (
        (base, framework.TrainerCallback()),
        ("Trainer: five sleeping hooks", rh.bridges.transformers.Hooks(sleeping())),
    ):
        arguments = framework.TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            report_to=[],
            use_cpu=True,
            max_steps=1,
            disable_tqdm=True,
        )
        trainer = framework.Trainer(Model(), arguments, train_dataset=Numbers())
        trainer.train()
        objects = {"model": trainer.model, "optimizer": trainer.optimizer}
        control = trainer.control
        callback.on_train_begin(arguments, trainer.state, control, **objects)
        callback.on_step_begin(arguments, trainer.state, control, **objects)
        trainer.model.train()(torch.ones(4))  # the loss of the step at which hooks log first
        callback.on_step_end(arguments, trainer.state, control, **objects)

        def loop(
            times: int,
            callback: framework.TrainerCallback = callback,
            trainer: framework.Trainer = trainer,
            objects: dict[str, object] = objects,
        ) -> None:
            args, state, control = trainer.args, trainer.state, trainer.control
            for _ in range(times):
                callback.on_step_begin(args, state, control, **objects)
                state.global_step += 1
                callback.on_step_end(args, state, control, **objects)

        yield _contender(name, loop, base)


def ignite() -> Iterator[Contender]:
    from ignite.engine import Engine, Events

    base = "ignite: two empty handlers"
    for name in (base, "ignite: five sleeping hooks"):
        engine = Engine(lambda engine, batch: {"loss": 0.5})
        engine.logger.setLevel(logging.CRITICAL)
        if name == base:
            engine.add_event_handler(Events.ITERATION_STARTED, _nothing)
            engine.add_event_handler(Events.ITERATION_COMPLETED, _nothing)
        else:
            rh.bridges.ignite.Hooks(sleeping()).attach(engine)
        engine.fire_event(Events.STARTED)
        engine.state.output = {"loss": 0.5}

        def loop(times: int, engine: Engine = engine) -> None:
            for _ in range(times):
                engine.state.iteration += 1
                engine.fire_event(Events.ITERATION_STARTED)
                engine.fire_event(Events.ITERATION_COMPLETED)

        yield _contender(name, loop, base)


def accelerate() -> Iterator[Contender]:
    import accelerate as framework

    base = "accelerate: its own loop"
    for name in (base, "accelerate: five sleeping hooks"):
        accelerator = framework.Accelerator(cpu=True)
        model = accelerator.prepare(Model())
        hooks = rh.bridges.accelerate.Hooks(accelerator, sleeping(), model=model)
        batch = _no_hooks if name == base else hooks.batch
        hooks.__enter__()

        def loop(
            times: int,
            batch: Callable[[], contextlib.AbstractContextManager[dict[str, Any]]] = batch,
            accelerator: framework.Accelerator = accelerator,
            model: nn.Module = model,
        ) -> None:
            for _ in range(times):
                with batch() as values, accelerator.accumulate(model):
                    values["loss"] = 0.5

        yield _contender(name, loop, base)


def tables(effort: Effort) -> Iterator[Table]:
    for framework in (keras, lightning, transformers, ignite, accelerate):
        contenders = list(framework())
        name = contenders[0].name.split(":")[0]
        title = f"{name}, callbacks of a batch at which no hook is due"
        yield measured(title, contenders, effort, 51, 300)


def _no_hooks() -> contextlib.AbstractContextManager[dict[str, Any]]:
    return contextlib.nullcontext({})


def _nothing(engine: object) -> None:
    pass


def _contender(name: str, loop: Loop, base: str) -> Contender:
    return (
        Contender(name, loop, role="limit")
        if name == base
        else Contender(name, loop, base, BUDGET, why=COUNTED)
    )
