"""The processes of one training; adapters: ``engines/``."""

from runhooks.ranks.group import (
    AloneGroup,
    Group,
    LocalGroup,
    current_group,
    entered,
    find_group_with,
)

__all__ = ["AloneGroup", "Group", "LocalGroup", "current_group", "entered", "find_group_with"]
