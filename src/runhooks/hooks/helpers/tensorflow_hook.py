"""``TensorFlowHook``: the private names of TensorFlow's hooks that subclasses of them use."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from runhooks.contract import SessionRunArgs, SessionRunContext, SessionRunHook
from runhooks.hooks.helpers.session import required_global_step
from runhooks.hooks.helpers.summary_output import SummaryOutput


class TensorFlowHook(SessionRunHook):
    """The base of hooks that TensorFlow has, too, and that programs have extended.

    A subclass finds the private names that it knows from TensorFlow's class. For those that have no
    counterpart here an error says so: when a hook is made that overrides a method which nobody
    would call, or when an attribute is read.
    """

    #: The private methods of TensorFlow's class that are never called here.
    never_called: ClassVar[tuple[str, ...]] = ()

    #: The private attributes of TensorFlow's class that do not exist here.
    absent: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        for name in cls.never_called:
            if hasattr(cls, name):
                raise TypeError(
                    f"{cls.__name__} overrides {name}, which TensorFlow's hook calls and that of "
                    "runhooks does not: override before_run, after_run or end instead"
                )
        return super().__new__(cls)

    def __getattr__(self, name: str) -> Any:
        hint = ""
        if name in self.absent:
            hint = (
                ": TensorFlow's hook has it, that of runhooks works without; use what before_run "
                "and after_run are given instead"
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{hint}")

    def begin(self) -> None:
        self._global_step_tensor = required_global_step(self)


class SummaryWritingHook(TensorFlowHook):
    """The base of those that write summaries, with ``_output``."""

    _output: SummaryOutput

    @property
    def _summary_writer(self) -> Any:
        return self._output.writer

    @_summary_writer.setter
    def _summary_writer(self, writer: Any) -> None:
        self._output = SummaryOutput(summary_writer=writer)
        self._output.open()


class StepReadingHook(TensorFlowHook):
    """The base of those whose TensorFlow class fetches the global step in every run.

    A subclass with an ``after_run`` of its own gets the step as ``run_values.results``.
    """

    _steps_per_run = 1

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        own = type(self).after_run.__module__
        is_ours = own.startswith("runhooks.hooks.")
        return None if is_ours else SessionRunArgs(self._global_step_tensor)

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Note it for subclasses; TensorFlow's loops call it. Here the step is always known."""
        self._steps_per_run = steps_per_run
