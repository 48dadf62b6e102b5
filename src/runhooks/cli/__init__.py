"""The ``runhooks`` command, of which all but ``doctor`` needs the extra ``cli``."""

from __future__ import annotations

import importlib.util
import signal
import sys

_LIBRARIES = ("typer", "rich", "plotext")


def main() -> None:
    # End in silence if a reader, such as head, stops.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    command, *names = sys.argv[1:] or [""]
    if command == "doctor" and not any(name.startswith("-") for name in names):
        from runhooks.cli.doctor import doctor  # it needs no extra

        doctor(names)
        return
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"runhooks: needs {' and '.join(missing)}: pip install 'runhooks[cli]'")
    from runhooks.cli.app import run

    run()
