"""``Hooks``: the hooks of a session in your own loop over accelerate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runhooks.bridges import require
from runhooks.bridges.torch_batches import TorchLoopHooks, TorchValues, listed
from runhooks.contract import SessionRunHook

require("accelerate", "accelerate>=1.3")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import Optimizer  # noqa: E402


class _GivenValues(TorchValues):
    title = "accelerate"

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def loss(self) -> Any:
        return _detached(self.given.get("loss"))

    def metrics(self) -> Mapping[str, Any]:
        return {name: _detached(it) for name, it in self.given.items() if name != "loss"}


class Hooks(TorchLoopHooks):
    """Calls the hooks of a session in a loop with an ``Accelerator``; each ``batch()`` is a run.

    ``docs/bridges.md`` shows the loop, and what hooks may fetch. The global step counts updates:
    batches at which ``accelerator.sync_gradients`` is true. Arguments and errors are those of
    ``LoopHooks``, and:

    Args:
        accelerator: The accelerator, of one process, else ValueError.
        model: The module to train, as ``prepare`` returned it.
        optimizer: Its optimizer, as ``prepare`` returned it, or a list of several.
    """

    exposes = _GivenValues

    def __init__(
        self,
        accelerator: Accelerator,
        hooks: Iterable[SessionRunHook] | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        model: nn.Module,
        optimizer: Optimizer | Iterable[Optimizer] = (),
        save_summaries_steps: int | None = 100,
        log_step_count_steps: int | None = 100,
    ) -> None:
        super().__init__(
            hooks,
            output_dir,
            save_summaries_steps=save_summaries_steps,
            log_step_count_steps=log_step_count_steps,
        )
        self._loop.check_processes(accelerator.num_processes)
        self._accelerator = accelerator
        self._model = model
        self._optimizers = listed(optimizer)
        self._step = 0
        #: Whether a hook has asked to stop; it may be so before the first batch.
        self.should_stop = False
        accelerator.register_for_checkpointing(self)

    @property
    def global_step(self) -> int:
        """The number of updates made."""
        return self._step

    @contextmanager
    def batch(self) -> Iterator[dict[str, Any]]:
        """Call the hooks around the ``with`` block, which gets a dict for the loss and metrics."""
        values: dict[str, Any] = {}
        self._values.given = values
        self._loop.before_batch()
        yield values
        self._step += bool(self._accelerator.sync_gradients)
        if self._loop.after_batch(self._step):
            self.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the hooks and the global step."""
        return {**super().state_dict(), "global_step": self._step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned."""
        self._step = state_dict["global_step"]
        super().load_state_dict(state_dict)

    def __enter__(self) -> Hooks:
        self._graph.take(self._accelerator.unwrap_model(self._model), self._optimizers)
        self.should_stop = self._loop.open(self._step)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self._loop.end()
        super().__exit__(kind, error, traceback)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
