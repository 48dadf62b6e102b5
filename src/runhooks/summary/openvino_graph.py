"""The graph in an OpenVINO file, for TensorBoard's graph tab."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

from runhooks.summary.node_def import encode_graph_def, encode_node, text_attribute


def openvino_graph_def(path: str | os.PathLike[str]) -> bytes:
    """Return the graph in the OpenVINO file (``.xml``) at ``path`` as a ``GraphDef``.

    It has a node for each edge, named after the layer that the edge leads to.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not an OpenVINO file.
    """
    try:
        root = ElementTree.fromstring(Path(path).read_bytes())
        names = {layer.attrib["id"]: layer.attrib["name"] for layer in root.iterfind("layers/*")}
        edges = [
            (names[edge.attrib["from-layer"]], names[edge.attrib["to-layer"]])
            for edge in root.iterfind("edges/*")
        ]
    except (ElementTree.ParseError, KeyError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not an OpenVINO file: {error}") from None
    attributes = {"parameters": text_attribute("")}
    return encode_graph_def(
        encode_node(target, "op", [source], attributes) for source, target in edges
    )
