"""The group: the processes of one training, which agree through a key-value store.

Adapters for the distributed runtimes of frameworks stand in ``engines/``.
"""

from __future__ import annotations

from runhooks.ranks.group import (
    AloneGroup,
    Group,
    LocalGroup,
    current_group,
    entered,
    find_group_with,
)

__all__ = ["AloneGroup", "Group", "LocalGroup", "current_group", "entered", "find_group_with"]
