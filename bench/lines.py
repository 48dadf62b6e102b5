"""How many lines of code functions and classes have, with what they use."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping

Definition = ast.FunctionDef | ast.ClassDef
NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"}


def definitions(source: str) -> dict[str, Definition]:
    """Return the functions and classes of a module, by name."""
    body = ast.parse(source).body
    return {it.name: it for it in body if isinstance(it, ast.FunctionDef | ast.ClassDef)}


def used_by(name: str, defined: Mapping[str, Definition]) -> set[str]:
    """Return the names of what a function or class uses of these, and of what that uses."""
    found, waiting = set[str](), [name]
    while waiting:
        now = waiting.pop()
        if now not in found:
            found.add(now)
            nodes = ast.walk(defined[now])
            waiting += [it.id for it in nodes if isinstance(it, ast.Name) and it.id in defined]
    return found


def count(source: str, names: Iterable[str]) -> int:
    """Return how many lines functions and classes have that are neither blank nor comment."""
    defined, code = definitions(source), _lines_of_code(source)
    return sum(len(code & _lines_of(defined[name])) for name in names)


def of_loops(gallery: str) -> tuple[set[str], set[str]]:
    """Return what ``plain`` uses in a program of the gallery, with itself, and what ``hooked``."""
    defined = definitions(gallery)
    return used_by("plain", defined), used_by("hooked", defined)


def of_bookkeeping(gallery: str, peer: str) -> tuple[int, int, int]:
    """Return the lines of ``plain``, of ``hooked`` and of the ``train`` of a peer.

    They are those of all that each uses, less those of what ``plain`` and ``hooked`` share: the
    model, the data and the steps. So a peer that makes the step itself has fewer.
    """
    of_gallery, own = definitions(gallery), definitions(peer)
    plain, hooked = of_loops(gallery)
    used = used_by("train", of_gallery | own)
    shared = count(gallery, plain & hooked)
    of_peer = count(peer, used & own.keys()) + count(gallery, used - own.keys())
    return count(gallery, plain) - shared, count(gallery, hooked) - shared, of_peer - shared


def first_line(node: Definition) -> int:
    return min([node.lineno, *(it.lineno for it in node.decorator_list)])


def _lines_of(node: Definition) -> set[int]:
    lines = set(range(first_line(node), (node.end_lineno or node.lineno) + 1))
    if ast.get_docstring(node) is not None:
        lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def _lines_of_code(source: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        line
        for it in tokens
        if tokenize.tok_name[it.type] not in NO_CODE
        for line in range(it.start[0], it.end[0] + 1)
    }
