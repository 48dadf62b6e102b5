"""Profiles with ``jax.profiler``, for TensorBoard and Perfetto."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import jax


def start_jax_profile(folder: Path, step: int) -> Callable[[], Path]:
    """As ``Engine.start_profile``; the profile is ``<folder>/plugins/profile/step-<step>``."""
    profiles = folder / "plugins" / "profile"
    before = _names(profiles)
    jax.profiler.start_trace(folder, create_perfetto_trace=True)

    def stop() -> Path:
        cast(Any, jax.profiler).stop_trace()
        written = profiles / max(_names(profiles) - before)
        # JAX names it for the second, and a second may see more than one.
        named = profiles / f"step-{step}"
        with suppress(OSError):  # it is there, from before this step was made once more
            written = written.rename(named)
        return written

    return stop


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
