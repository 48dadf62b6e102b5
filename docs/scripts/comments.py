"""Lets the reference show ``#:`` comments of attributes, and the values of private constants."""

from __future__ import annotations

import ast
from itertools import takewhile
from pathlib import Path
from typing import Any

import griffe


class AttributeComments(griffe.Extension):
    """Makes the ``#:`` comment above an attribute its docstring."""

    def on_attribute_instance(
        self,
        *,
        node: ast.AST | griffe.ObjectNode,
        attr: griffe.Attribute,
        agent: griffe.Visitor | griffe.Inspector,
        **kwargs: Any,
    ) -> None:
        """Take the lines above an attribute that has no docstring."""
        if attr.docstring is not None or not attr.lineno or not isinstance(attr.filepath, Path):
            return
        above = reversed(attr.lines_collection[attr.filepath][: attr.lineno - 1])
        comment = list(takewhile(lambda line: line.startswith("#:"), map(str.strip, above)))
        if comment:
            text = "\n".join(line.removeprefix("#:").strip() for line in reversed(comment))
            attr.docstring = griffe.Docstring(text, parent=attr)


class PrivateDefaults(griffe.Extension):
    """Shows the values of defaults that are private constants, instead of their names."""

    def on_function_instance(
        self,
        *,
        node: ast.AST | griffe.ObjectNode,
        func: griffe.Function,
        agent: griffe.Visitor | griffe.Inspector,
        **kwargs: Any,
    ) -> None:
        """Replace the default of each such parameter."""
        for parameter in func.parameters:
            constant = func.module.members.get(str(parameter.default))
            if isinstance(constant, griffe.Attribute) and constant.name.startswith("_"):
                value = constant.value
                # A number of a class that tells it from the same number of a caller.
                if isinstance(value, griffe.ExprCall) and value.arguments:
                    value = value.arguments[0]
                parameter.default = value
