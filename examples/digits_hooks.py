"""The hooks of the digits examples, identical for JAX and PyTorch.

They ask for values by name, and do not know which framework computes them.
"""

from typing import Any

import runhooks as rh


class Evaluation(rh.SessionRunHook):
    """Evaluates when the loop has ended well, by the last step or by Ctrl-C."""

    def end(self, session: Any) -> None:
        accuracy = float(session.run("evaluate:0"))
        self.report = f"step {session.global_step}: {accuracy:.1%} of the test digits read right"


def hooks_until(last_step: int) -> tuple[rh.StopAtStepHook, rh.ProgressHook, Evaluation]:
    """For any graph with a global step, a ``loss`` and an ``evaluate``."""
    return (
        rh.StopAtStepHook(last_step=last_step),
        rh.ProgressHook(last_step, {"loss": "loss"}),
        Evaluation(),
    )
