"""``Hooks``: the hooks of a session around the iterations of ignite."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.bridges import require
from runhooks.bridges.torch_batches import TorchLoopHooks, TorchValues, listed
from runhooks.contract import SessionRunHook

require("ignite", "pytorch-ignite>=0.5.2")

import ignite.distributed as idist  # noqa: E402
from ignite.engine import Engine, Events  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import Optimizer  # noqa: E402


class _IgniteValues(TorchValues):
    title = "ignite"

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine | None = None

    def loss(self) -> Any:
        output = self._output()
        if isinstance(output, Mapping):
            return output.get("loss")
        return None if isinstance(output, tuple | list) else output

    def metrics(self) -> Mapping[str, Any]:
        return {} if self.engine is None else self.engine.state.metrics

    def other(self, name: str) -> Callable[[], Any] | None:
        kind, _, rest = name.partition("/")
        if kind == "output":
            return self._output if not rest else lambda: self._output_of(rest)
        return super().other(name)

    def other_names(self) -> list[str]:
        output = self._output()
        keys = output if isinstance(output, Mapping) else ()
        return ["output", *(f"output/{key}" for key in keys), *super().other_names()]

    def _output(self) -> Any:
        return None if self.engine is None else self.engine.state.output

    def _output_of(self, key: str) -> Any:
        output = self._output()
        if not isinstance(output, Mapping) or key not in output:
            what = sorted(output) if isinstance(output, Mapping) else type(output).__name__
            raise ValueError(f"{f'output/{key}'!r} is not in the output of the engine: {what}")
        return output[key]


class Hooks(TorchLoopHooks):
    """Calls the hooks of a session in an ignite engine; each iteration is a run.

    ``docs/reference/bridges.md`` says what hooks may fetch, and more of steps, stops, errors and
    checkpoints. Attach metrics that change in each iteration before these hooks. Arguments and
    errors are those of ``LoopHooks``, and:

    Args:
        model: The module that the engine trains, for hooks to fetch from.
        optimizer: Its optimizer, or a list of several.
    """

    exposes = _IgniteValues

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        model: nn.Module | None = None,
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
        self._model = model
        self._optimizers = listed(optimizer)

    def attach(self, engine: Engine, evaluator: Engine | None = None) -> Hooks:
        """Call the hooks around the iterations of ``engine``; return this object.

        Args:
            engine: The engine that trains.
            evaluator: An engine whose metrics a ``ValidationHook`` collects after each of its runs.
                Attach its metrics before this call, and the handler of ``engine`` that runs it
                after.
        """
        for event, handler in (
            (Events.STARTED, self._open),
            (Events.ITERATION_STARTED, self._before),
            (Events.ITERATION_COMPLETED, self._after),
            (Events.TERMINATE, self._terminated),
            (Events.COMPLETED, self._end),
            (Events.EXCEPTION_RAISED, self._raised),
        ):
            engine.add_event_handler(event, handler)
        if evaluator is not None:
            evaluator.add_event_handler(Events.COMPLETED, self._evaluated, engine)
        return self

    def _open(self, engine: Engine) -> None:
        self._loop.check_processes(idist.get_world_size())
        self._values.engine = engine
        self._graph.take(self._model, self._optimizers)
        if self._loop.open(engine.state.iteration):
            engine.terminate()

    def _before(self, engine: Engine) -> None:
        self._loop.before_batch()

    def _after(self, engine: Engine) -> None:
        if self._loop.after_batch(engine.state.iteration):
            engine.terminate()

    def _evaluated(self, evaluator: Engine, engine: Engine) -> None:
        if self._loop.after_validation(evaluator.state.metrics):
            engine.terminate()

    def _terminated(self, engine: Engine) -> None:
        if engine.should_terminate == "skip_completed":
            self._loop.end()

    def _end(self, engine: Engine) -> None:
        self._loop.end()

    def _raised(self, engine: Engine, error: BaseException) -> None:
        self._loop.fail(error)
        # With handlers of exceptions, an engine does not raise.
        if len(vars(engine)["_event_handlers"][Events.EXCEPTION_RAISED]) == 1:
            raise error
