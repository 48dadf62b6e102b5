"""An event file in a store that loses requests, answers, and time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runhooks.events import Event, frame, read_records
from runhooks.events.writing import event_file
from runhooks.events.writing.event_file import StoredFile
from runhooks.stores import StoredObject
from runhooks.testing import FakeClock

SEGMENT_BYTES = 200


class Faulty:
    """A store. ``fate`` says what becomes of the next ``put``.

    "done"; "refused": it fails; "lost answer": it fails, though it has been done; "late": it fails,
    and is done when ``arrive`` is called; "sent twice": it is done, after a long time, and once
    more when ``arrive`` is called.
    """

    def __init__(self, fake_clock: FakeClock) -> None:
        self.held: dict[str, bytes] = {}
        self.fate = "done"
        self.on_their_way: list[tuple[str, bytes]] = []
        self.clock = fake_clock

    def objects(self) -> list[StoredObject]:
        return [StoredObject(key, len(it), 0.0) for key, it in sorted(self.held.items())]

    def put(self, key: str, data: bytes) -> None:
        if self.fate in ("done", "lost answer", "sent twice"):
            self.held[key] = data
        if self.fate in ("late", "sent twice"):
            self.on_their_way.append((key, data))
        if self.fate == "sent twice":
            self.clock.advance(60)
        elif self.fate != "done":
            raise OSError(f"{self.fate}: {key}")

    def arrive(self, index: int) -> None:
        if self.on_their_way:
            key, data = self.on_their_way.pop(index % len(self.on_their_way))
            self.held[key] = data

    def steps(self) -> list[int]:
        """The steps of all events, as a reader of the directory finds them."""
        return list(self._steps())

    def _steps(self) -> Iterator[int]:
        for key, content in sorted(self.held.items()):
            first, *events = map(Event.FromString, read_records(io.BytesIO(content), key))
            assert first.file_version
            yield from (event.step for event in events)


@pytest.fixture
def patched_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    with FakeClock() as fake_clock:
        store = Faulty(fake_clock)
        monkeypatch.setattr(event_file, "SEGMENT_BYTES", SEGMENT_BYTES)
        monkeypatch.setattr(event_file, "open_store", lambda url: store)
        yield store


def record(step: int) -> bytes:
    return frame(Event(float(step), step, summary=b"").SerializeToString())


ACTIONS = st.one_of(
    st.integers(1, 12).map(lambda count: ("write", count)),
    st.sampled_from(["done", "refused", "lost answer", "late", "sent twice"]).map(
        lambda fate: ("store", fate)
    ),
    st.integers(0, 5).map(lambda index: ("arrive", index)),
)


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=30))
def test_what_is_stored_stays_and_nothing_is_there_twice(actions: list[tuple[str, Any]]) -> None:
    with FakeClock() as fake_clock, pytest.MonkeyPatch.context() as patch:
        store = Faulty(fake_clock)
        patch.setattr(event_file, "SEGMENT_BYTES", SEGMENT_BYTES)
        patch.setattr(event_file, "open_store", lambda url: store)
        file = StoredFile("s3://bucket/run")
        written = stored = 0
        for action, argument in [*actions, ("store", "done")]:
            if action == "write":
                for _ in range(argument):
                    with suppress(OSError):
                        file.write(record(written))
                    written += 1
            elif action == "arrive":
                store.arrive(argument)
            else:
                store.fate = argument
                with suppress(OSError):
                    file.store()
                    stored = written
                    assert file.waiting == 0
            steps = store.steps()
            assert steps == list(range(len(steps)))
            assert stored <= len(steps) <= written
            assert written - file.waiting <= len(steps)
        while store.on_their_way:
            store.arrive(0)
            assert store.steps() == list(range(written))


def test_segments_are_few_and_their_names_are_in_order(
    patched_store: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StoredFile("s3://bucket/run", ".end")
    for step in range(100):
        file.write(record(step))
        file.store()
    names = list(patched_store.held)
    assert names == sorted(names)
    assert [name[-10:] for name in names] == [f".{n:05d}.end" for n in range(len(names))]
    assert all(len(it) >= SEGMENT_BYTES for it in list(patched_store.held.values())[:-1])
    # A clock that was ahead has named files of an earlier process.
    earlier = names[0].replace(names[0].split(".")[3], "1900000000")
    patched_store.held[earlier] = b""
    StoredFile("s3://bucket/run")
    assert max(patched_store.held) != earlier


def test_what_waits_is_bounded_and_what_is_lost_is_told(
    patched_store: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "MOST_WAITING_BYTES", 1000)
    file = StoredFile("s3://bucket/run")
    patched_store.fate = "refused"
    taken = 0
    for step in range(200):
        before = file.size
        with suppress(OSError):
            file.write(record(step))
        taken += file.size > before
    assert 20 < taken < 100
    assert file.waiting == taken
    patched_store.fate = "done"
    file.store()
    assert patched_store.steps() == list(range(taken))


def test_a_place_that_cannot_be_written_to_is_named(patched_store: Faulty) -> None:
    patched_store.fate = "refused"
    with pytest.raises(OSError, match="refused") as caught:
        StoredFile("s3://bucket/run")
    assert "got 's3://bucket/run'" in caught.value.__notes__[0]
