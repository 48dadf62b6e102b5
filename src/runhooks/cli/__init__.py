"""The ``runhooks`` command, which needs the extra ``cli``; one file per sub-command."""

from __future__ import annotations

import importlib.util
import signal
import sys

_LIBRARIES = ("typer", "rich", "plotext")


def main() -> None:
    """Run the command; the entry point of ``runhooks``."""
    # A reader may stop reading, as head does; the command then ends in silence, as others do.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    command, *names = sys.argv[1:] or [""]
    if command == "doctor" and not any(name.startswith("-") for name in names):
        from runhooks.cli.doctor import doctor  # says what is missing, be it this command's own

        doctor(names)
        return
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"runhooks: needs {' and '.join(missing)}: pip install 'runhooks[cli]'")
    from runhooks.cli.app import run

    run()
