"""The group: the processes of one training, which agree through a key-value store.

Adapters for the distributed runtimes of frameworks stand in ``engines/``.
"""

from __future__ import annotations

from runhooks.ranks.current import current_group, entered, find_group_with
from runhooks.ranks.group import Group
from runhooks.ranks.local import AloneGroup, LocalGroup

__all__ = ["AloneGroup", "Group", "LocalGroup", "current_group", "entered", "find_group_with"]
