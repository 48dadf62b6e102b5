"""``Hooks``: the hooks of a session as a callback of Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.bridges import require
from runhooks.bridges.torch_batches import TorchLoopHooks, TorchValues

require("lightning", "lightning>=2.5")

from lightning.pytorch import Callback  # noqa: E402


class _LightningValues(TorchValues):
    title = "Lightning"

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Any = None
        self.outputs: Any = None
        self._before: dict[str, Any] = {}
        self._validated: set[str] = set()

    def loss(self) -> Any:
        outputs = self.outputs
        return outputs.get("loss") if isinstance(outputs, Mapping) else outputs

    def is_skipped(self) -> bool:
        # With an optimization of one's own, training_step returns what it likes, or nothing.
        return not self.outputs and self.trainer.lightning_module.automatic_optimization

    def metrics(self) -> Mapping[str, Any]:
        return {} if self.trainer is None else self.trainer.callback_metrics

    def validated(self) -> dict[str, Any]:
        return {name: it for name, it in self.metrics().items() if name in self._validated}

    def begin_validation(self) -> None:
        self._before = dict(self.metrics())

    def end_validation(self) -> dict[str, Any]:
        """Return the metrics that a validation has logged: their names or values are new."""
        before, self._before = self._before, {}
        now = self.metrics()
        self._validated |= now.keys() - before.keys()
        return {name: it for name, it in now.items() if it is not before.get(name)}


class Hooks(TorchLoopHooks, Callback):
    """Calls the hooks of a session in ``trainer.fit``; each batch is a run.

    ``docs/reference/bridges.md`` says what hooks may fetch, and more of steps, stops, errors and
    checkpoints. Arguments and errors are those of ``LoopHooks``.
    """

    exposes = _LightningValues

    @property
    def state_key(self) -> str:
        """The name by which checkpoints know the states of the hooks."""
        return "runhooks"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._loop.check_processes(trainer.world_size)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._values.trainer = trainer
        self._graph.take(pl_module, trainer.optimizers)
        if self._loop.open(trainer.global_step):
            trainer.should_stop = True

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._loop.before_batch()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self._values.outputs = outputs
        if self._loop.after_batch(trainer.global_step):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._values.begin_validation()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        found = self._values.end_validation()
        if not trainer.sanity_checking and self._loop.after_validation(found):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._loop.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._loop.fail(exception)
