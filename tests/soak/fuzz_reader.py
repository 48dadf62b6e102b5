"""Run by ``test_fuzz_reader``: libFuzzer's options and the folder of a corpus are its arguments."""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "events" / "reading"))
with atheris.instrument_imports(include=["runhooks.events.reading"]):
    from exercise import exercise

from runhooks.events import frame


def fuzz(content: bytes) -> None:
    """As it is, or with checks that hold, for no fuzzer guesses these."""
    if content[:1] == b"F":
        content = b"".join(frame(payload) for payload in content[1:].split(b"|F|"))
    exercise(content)


atheris.Setup(sys.argv, fuzz)
atheris.Fuzz()
