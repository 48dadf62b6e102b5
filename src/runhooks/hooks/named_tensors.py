"""Tensors that are shown to people, under names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.graph.graph import get_default_graph


class NamedTensors:
    """``tensors``: a dict of tensors, or names of tensors, by label; or just a list of them.

    A dict is shown in the order of its labels, a list as it is, each under its own name.
    """

    def __init__(self, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        if isinstance(tensors, str):
            raise TypeError(f"tensors must be a dict or a list, got {tensors!r}")
        if isinstance(tensors, Mapping):
            self._by_key: dict[Any, Any] = {label: tensors[label] for label in sorted(tensors)}
        else:
            self._by_key = {tensor: tensor for tensor in tensors}

    def __len__(self) -> int:
        return len(self._by_key)

    def fetches(self) -> dict[Any, Any]:
        """The tensors of the default graph by key: a label, or what was in the list.

        Raises ValueError or TypeError for what is no tensor of it.
        """
        graph = get_default_graph()
        return {key: graph.as_graph_element(tensor) for key, tensor in self._by_key.items()}

    def labelled(self, values: Mapping[Any, Any]) -> list[tuple[str, Any]]:
        """The labels and ``values``, fetched by key, in the order in which they are shown."""
        return [(key if isinstance(key, str) else key.name, values[key]) for key in self._by_key]
