"""What runhooks puts into TensorBoard's readers, and which of its tests differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from runhooks.events import frame, read_records
from runhooks.tensorboard import EventAccumulator, event_accumulator
from tests.suites.__main__ import Suite

_READERS = "tensorboard.backend.event_processing."


class AnyAccumulator(EventAccumulator):
    """Ours, which reads what a generator of events gives, too: as a file that grows."""

    def __init__(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._generator = path if hasattr(path, "Load") else None
        self._folder = TemporaryDirectory()
        if self._generator is not None:
            path = Path(self._folder.name, "events.out.tfevents.1.generated")
            path.touch()
        super().__init__(path, *args, **kwargs)

    def Reload(self) -> AnyAccumulator:  # noqa: N802
        self._take()
        super().Reload()
        return self

    def FirstEventTimestamp(self) -> float:  # noqa: N802
        self._take_first()
        return super().FirstEventTimestamp()

    def GetSourceWriter(self) -> str | None:  # noqa: N802
        self._take_first()
        return super().GetSourceWriter()

    def _take_first(self) -> None:
        if self._generator is not None and not Path(self.path).stat().st_size:
            self._take()

    def _take(self) -> None:
        if self._generator is not None:
            with Path(self.path).open("ab") as file:
                for event in self._generator.Load():
                    file.write(frame(event.SerializeToString()))


class RawLoader:
    """``read_records`` as a loader: each ``Load`` goes on where the one before has ended."""

    def __init__(self, file_path: str, detect_file_replacement: bool = False) -> None:
        self._path = file_path
        self._file = Path(file_path).open("rb")  # noqa: SIM115 (as long as the loader)

    def Load(self) -> Iterator[bytes]:  # noqa: N802
        return read_records(self._file, self._path)


def _names() -> Mapping[str, Mapping[str, Any]]:
    events = {
        name: it
        for name, it in vars(event_accumulator).items()
        if name.endswith("Event") and it.__module__ == event_accumulator.__name__
    }
    return {
        _READERS + "event_accumulator": {
            "EventAccumulator": AnyAccumulator,
            "HistogramValue": event_accumulator.HistogramValue,
            **events,
        },
        _READERS + "event_file_loader": {"RawEventFileLoader": RawLoader},
    }


def _prepare() -> None:
    from absl import flags

    flags.FLAGS(["suites"])  # the tests ask them for a directory


SUITE = Suite(
    files=(
        "tensorboard/backend/event_processing/event_accumulator_test.py",
        "tensorboard/backend/event_processing/event_file_loader_test.py",
    ),
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
    differences={
        "*::test*DiscardedPerTagAfterRestartForFileVersionLessThan2": "a step that goes back drops "
        "nothing in a file of the first version either: only a START says that a session restarted",
        "*::testExpiredDataDiscardedAfterRestartForFileVersionLessThan2": "the same",
        "*::testSummaryMetadata*": "it is a named tuple, no message: that would need tensorboard",
        "*LoadsEvent": "they look at an attribute file_version, which ours does not have",
    },
)
