"""The ``runhooks`` command, which needs the extra ``cli``; one file per sub-command."""

from __future__ import annotations

import importlib.util
import signal
import sys

_LIBRARIES = ("typer", "rich", "plotext", "matplotlib")


def main() -> None:
    """Run the command; the entry point of ``runhooks``."""
    # A reader may stop reading, as head does; the command then ends in silence, as others do.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.argv[1:] == ["doctor"]:  # which says what is missing, be it this command's own
        from runhooks.cli.doctor import doctor

        doctor()
        return
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"runhooks: needs {' and '.join(missing)}: pip install 'runhooks[cli]'")
    from runhooks.cli.app import run

    run()
