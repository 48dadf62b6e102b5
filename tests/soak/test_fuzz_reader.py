"""A fuzzer led by coverage finds no bytes that the reader of event files cannot take.

``FUZZ_SECS=...`` says for how long it looks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runhooks.events import read_records

HERE = Path(__file__).parent
CORPUS = HERE.parent / "data" / "corpus"


def payloads(path: Path) -> bytes:
    """What is in the records of ``path``, as the fuzzer takes it to put checks around it."""
    with path.open("rb") as file:
        return b"F" + b"|F|".join(read_records(file, str(path)))


@pytest.mark.soak
def test_no_bytes_are_too_much(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    seeds = tmp_path / "seeds"
    shutil.copytree(CORPUS, seeds)
    for name in ("runhooks", "tensorflow_1_restarted", "tensorflow_2", "tensorboardx", "torch"):
        (seeds / f"{name}.payloads").write_bytes(payloads(CORPUS / f"{name}.tfevents"))
    limits = [
        f"-max_total_time={os.environ.get('FUZZ_SECS', '300')}",
        "-timeout=20",
        "-rss_limit_mb=2048",  # the fuzzer itself takes more and more
        "-malloc_limit_mb=256",
        "-max_len=8192",
        f"-artifact_prefix={tmp_path}/",
    ]
    fuzzer = subprocess.run(
        [sys.executable, str(HERE / "fuzz_reader.py"), *limits, str(seeds)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert fuzzer.returncode == 0, fuzzer.stdout[-3_000:] + fuzzer.stderr[-1_000:]
    assert "DONE" in fuzzer.stderr or "Done" in fuzzer.stderr
