"""For tests of hooks and loops: a clock to move, a hook that records, a reader of events."""

from runhooks.testing.event_files import read_events
from runhooks.testing.fake_clock import FakeClock
from runhooks.testing.recording_hook import RecordingHook

__all__ = ["FakeClock", "RecordingHook", "read_events"]
