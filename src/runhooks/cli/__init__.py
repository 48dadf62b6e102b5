"""The ``runhooks`` command, of the extra ``cli``: a sub-command a file."""

from __future__ import annotations

import importlib.util
import sys

_LIBRARIES = ("typer", "rich", "plotext", "matplotlib")


def main() -> None:
    """Run the command; what ``runhooks`` on a command line calls."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"runhooks: needs {' and '.join(missing)}: pip install 'runhooks[cli]'")
    from runhooks.cli.app import run

    run()
