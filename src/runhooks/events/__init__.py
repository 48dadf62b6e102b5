"""Event files: bytes in records, written in the background and read back.

Nothing here knows what a summary means.
"""

from runhooks.events.background import flush_all
from runhooks.events.event import Event, Message, SessionLog, SessionStatus
from runhooks.events.event_writer import EventWriter
from runhooks.events.reader import read_events
from runhooks.events.record import frame, read_records

__all__ = [
    "Event",
    "EventWriter",
    "Message",
    "SessionLog",
    "SessionStatus",
    "flush_all",
    "frame",
    "read_events",
    "read_records",
]
