"""Profiles with ``torch.profiler``, for Perfetto, TensorBoard or chrome://tracing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch


def start_torch_profile(folder: Path, step: int) -> Callable[[], Path]:
    """As ``Engine.start_profile``; the profile is ``<folder>/timeline-<step>.pt.trace.json``."""
    # To stop a second one ends the process.
    if getattr(torch.autograd, "_profiler_enabled", lambda: False)():
        raise RuntimeError("another profiler of torch is running")
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    profile = torch.profiler.profile(activities=kinds, record_shapes=True, with_stack=True)
    profile.start()

    def stop() -> Path:
        profile.stop()
        path = folder / f"timeline-{step}.pt.trace.json"
        profile.export_chrome_trace(str(path))
        return path

    return stop
