"""``Hooks``: the hooks of a session as a callback of ``Trainer``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from runhooks.bridges import require
from runhooks.bridges.torch_batches import TorchLoopHooks, TorchValues

require("transformers", "transformers[torch]>=4.51")

from transformers import Trainer, TrainerCallback, TrainerState  # noqa: E402
from transformers.trainer_callback import ExportableState  # noqa: E402


class _TrainerValues(TorchValues):
    title = "Trainer"

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Trainer | None = None
        self.evaluated: dict[str, Any] = {}
        self._evaluated_step: int | None = None
        self._losses: list[Any] = []
        self._put_back: Callable[[], None] | None = None

    def listen(self) -> None:
        self.stop_listening()
        self._losses = []
        if self.trainer is not None:
            self._put_back = _listening(self.trainer, self._losses)

    def stop_listening(self) -> None:
        if self._put_back is not None:
            self._put_back()
            self._put_back = None

    def loss(self) -> Any:
        return sum(self._losses[1:], start=self._losses[0]) if self._losses else None

    def metrics(self) -> Mapping[str, Any]:
        return self.evaluated

    def validated(self) -> Mapping[str, Any]:
        return self.evaluated

    def take_evaluated(self, step: int, metrics: Mapping[str, Any]) -> None:
        if step != self._evaluated_step:
            self.evaluated, self._evaluated_step = {}, step
        self.evaluated = {**self.evaluated, **metrics}

    def own_evaluations(self) -> set[str]:
        """Return a metric of each evaluation of ``eval_dataset``."""
        sets = None if self.trainer is None else self.trainer.eval_dataset
        return {f"eval_{it}_runtime" for it in sets} if isinstance(sets, dict) else {"eval_runtime"}


def _listening(trainer: Trainer, losses: list[Any]) -> Callable[[], None]:
    """Add to ``losses`` what ``training_step`` returns; return what ends that."""
    own, step = vars(trainer), trainer.training_step
    before = {name: it for name, it in own.items() if name == "training_step"}

    def listening(*args: Any, **kwargs: Any) -> Any:
        loss = step(*args, **kwargs)
        losses.append(loss.detach())
        return loss

    def put_back() -> None:
        del own["training_step"]
        own.update(before)

    own["training_step"] = listening
    return put_back


def _trainer_of(state: TrainerState) -> Trainer | None:
    """Return the trainer that calls with its ``state``: it does not pass itself to callbacks."""
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer) and found.state is state:
            return found
        frame = frame.f_back
    return None


class Hooks(TorchLoopHooks, TrainerCallback, ExportableState):
    """Calls the hooks of a session in ``trainer.train()``; each update of the model is a run.

    ``docs/reference/bridges.md`` says what hooks may fetch, and more of steps, stops, errors and
    checkpoints. Add only one such callback to a trainer, with all hooks, and before any callback
    that evaluates. Arguments and errors are those of ``LoopHooks``.
    """

    exposes = _TrainerValues

    def state(self) -> dict[str, Any]:
        """Return the states of the hooks, as checkpoints of ``Trainer`` hold them."""
        return {"args": {}, "attributes": self._loop.state_dict()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.restore_callback_states_from_checkpoint:
            raise ValueError(
                "restore_callback_states_from_checkpoint must be False: this callback restores "
                "itself, and Trainer would put one without hooks in its place"
            )
        self._loop.check_processes(args.world_size)
        saved = state.stateful_callbacks.get(type(self).__name__)
        if isinstance(saved, list):
            raise ValueError(
                f"a trainer takes one callback with all hooks, got {len(saved)} of its class"
            )
        if saved is not None and state.global_step:
            self._loop.load_state_dict(saved["attributes"])
        self._values.trainer = _trainer_of(state)
        self._graph.take(kwargs["model"], [kwargs["optimizer"]])
        if self._loop.open(state.global_step):
            control.should_training_stop = True
        # A checkpoint saved without this callback has no place for it.
        state.stateful_callbacks[type(self).__name__] = self.state()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.before_batch()
        if self._loop.is_asked:
            self._values.listen()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._loop.after_batch(state.global_step):
            control.should_training_stop = True
        self._values.stop_listening()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **kwargs: Any
    ) -> None:
        values = self._values
        values.take_evaluated(state.global_step, metrics)
        own = values.own_evaluations()
        is_own = own <= values.evaluated.keys()
        if not is_own and not own.isdisjoint(metrics):
            return
        if self._loop.after_validation(values.evaluated, is_own):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.end()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._values.stop_listening()
        super().__exit__(kind, error, traceback)
