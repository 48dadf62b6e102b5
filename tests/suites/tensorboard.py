"""What runhooks puts into TensorBoard's reader of records, and which tests differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runhooks.events import read_records
from tests.suites.__main__ import Suite

_READERS = "tensorboard.backend.event_processing."


class RawLoader:
    """``read_records`` as a loader: each ``Load`` goes on where the one before has ended."""

    def __init__(self, file_path: str, detect_file_replacement: bool = False) -> None:
        self._path = file_path
        self._file = Path(file_path).open("rb")  # noqa: SIM115 (as long as the loader)

    def Load(self) -> Iterator[bytes]:  # noqa: N802
        return read_records(self._file, self._path)


def _names() -> Mapping[str, Mapping[str, Any]]:
    return {
        _READERS + "event_file_loader": {"RawEventFileLoader": RawLoader},
    }


def _prepare() -> None:
    from absl import flags

    flags.FLAGS(["suites"])  # the tests ask them for a directory


SUITE = Suite(
    files=("tensorboard/backend/event_processing/event_file_loader_test.py",),
    names=_names,
    prepare=_prepare,
    packages=("tensorboard", "tensorboard.util"),
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
    not_ours={
        "*::test_session": "a helper of its TestCase, no test",
        "*::testLoad_detectFileReplacement_*": "read_records is given an open file; a file that "
        "was replaced is noticed by events.read, whose own tests show it",
        "event_file_loader_test.py::EventFileLoaderTest::*": "the loaders of messages are "
        "TensorBoard's own",
        "event_file_loader_test.py::TimestampedEventFileLoaderTest::*": "the same",
    },
)
