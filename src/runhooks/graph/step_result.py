"""``ResultRule``: which parts of a step's result are new states, and which are outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from runhooks.arrays import trees
from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.arrays.values import host_form
from runhooks.graph import nest
from runhooks.graph.engine import Engine
from runhooks.near_names import suggestion, with_article

_MANY = 4

#: A name for a value, or names for the elements of a tuple.
Names: TypeAlias = "str | tuple[Names, ...]"


class ResultRule:
    """Divides what a step returns.

    - Names decide: a dict, a named tuple or a dataclass with the name of a state has all states.
    - Identity decides for objects that the step changes in place: they need not be returned.
    - Otherwise the states come first, in the order of the parameters, or the state alone.
    - ``outputs`` name what else it returns, or all elements, if names of states are among them.

    Shapes, dtypes and structures are only checked.
    """

    def __init__(
        self, step: str, states: Sequence[str], outputs: Sequence[Names], engine: Engine
    ) -> None:
        self.step = step
        self.states = states
        self.outputs = outputs
        self._engine = engine
        self._names_all = not set(states).isdisjoint(nest.leaves(outputs))
        self._size: int | None = None  # of each result without names
        self._returned: list[int] | None = None  # the states that are not changed in place

    def divide(self, returned: Any, old: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the new states, for the ``old`` ones, and the outputs by name.

        ValueError: states are missing, or ``outputs`` do not fit.
        """
        if self._returned is None:
            self._returned = [i for i, it in enumerate(old) if not self._engine.objects_of(it)]
        count, kind = len(self._returned), type(returned)
        elements: Sequence[Any] = (returned,)
        if not self._names_all and (kind is tuple or kind is list):
            elements = returned
        elif (by_name := self._by_name(returned)) is not None:
            return self._divided(by_name, returned, old)
        elif _is_plain(returned):
            elements = returned
        if self._size is None:
            self._size = len(elements)
        if len(elements) != self._size:
            raise ValueError(
                f"{self.step!r} returned {described(self._engine, returned)}, and {self._size} "
                "elements before: it must return the same elements in each run"
            )
        if count < len(old):
            elements = self._without_objects(elements, returned, old)
        if len(elements) < count:
            raise self._refusal(returned, old, self._returned[len(elements) :])
        states, rest = elements[:count], elements[count:]
        if count < len(old):
            new = dict(zip(self._returned, states, strict=True))
            states = [new.get(i, before) for i, before in enumerate(old)]
        return states, self._named(rest, returned, old) if rest or self.outputs else {}

    def _divided(
        self, by_name: dict[str, Any], returned: Any, old: Sequence[Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        lacking = [i for i in self._returned or () if self.states[i] not in by_name]
        if lacking:
            raise self._refusal(returned, old, lacking)
        states = [by_name.pop(name, before) for name, before in zip(self.states, old, strict=True)]
        if self._names_all or not (by_name or self.outputs):
            return states, by_name
        return states, self._named([by_name] if by_name else [], returned, old)

    def check(self, returned: Any, old: Sequence[Any], new: Sequence[Any]) -> None:
        for i, (name, before, state) in enumerate(zip(self.states, old, new, strict=True)):
            try:
                self._engine.conform(name, before, state)
            except ValueError as error:
                raise self._refusal(returned, old, [i], str(error)) from None

    def _by_name(self, returned: Any) -> dict[str, Any] | None:
        names = self.outputs
        fields = trees.fields(returned)
        if not self._names_all:
            return None if fields is None or fields.keys().isdisjoint(self.states) else fields
        if fields is not None and len(names) > 1 and fields.keys() >= set(names):
            return fields
        if len(names) == 1 and isinstance(names[0], str):
            return {names[0]: returned}
        found = dict(_pairs(tuple(names), returned))
        if None in found:
            raise ValueError(
                f"outputs must name each element of what {self.step!r} returns, "
                f"{described(self._engine, returned)}, got {list(names)}"
            )
        return found  # type: ignore[return-value]

    def _without_objects(
        self, elements: Sequence[Any], returned: Any, old: Sequence[Any]
    ) -> list[Any]:
        given = {id(it) for state in old for it in self._engine.objects_of(state)}
        left = []
        for element in elements:
            objects = {id(it) for it in self._engine.objects_of(element)}
            if not objects or not objects <= given:
                left.append(element)
            if not objects <= given and not self.outputs:
                raise self._refusal(returned, old, range(len(old)))
        return left

    def _named(self, rest: Sequence[Any], returned: Any, old: Sequence[Any]) -> dict[str, Any]:
        names = self.outputs
        rest = [value for value in rest if value is not None]
        fields = trees.fields(rest[0]) if len(rest) == 1 else None
        if fields is not None and (not names or fields.keys() >= set(names)):
            return fields
        if not names:
            names = ["output"] if len(rest) == 1 else [f"output/{i}" for i in range(len(rest))]
        if len(rest) == 1 < len(names) and _is_plain(rest[0]):
            rest = rest[0]
        found = dict(_pairs(tuple(names), tuple(rest)))
        if None not in found:
            return found  # type: ignore[return-value]
        known = fields or {}
        unknown = next((name for name in nest.leaves(names) if name not in known), "")
        cure = suggestion(unknown, known) if known else ""
        if len(self._returned or ()) < len(old) and (line := self._line(returned, old)):
            cure = f": name each element, outputs={line}"  # a new object in place of a changed one
        raise ValueError(
            f"outputs must name what {self.step!r} returns beside its states, "
            f"{described(self._engine, tuple(rest))}, got {list(names)}{cure}"
        )

    def _refusal(
        self, returned: Any, old: Sequence[Any], which: Sequence[int], why: str = ""
    ) -> ValueError:
        names = [self.states[i] for i in which]
        why = why or f"{self.step!r} must return the new {' and '.join(map(repr, names))}"
        got = f"{why}. It returned {described(self._engine, returned)}"
        if (line := self._line(returned, old)) is not None:
            return ValueError(f"{got}: name each element, outputs={line}")
        order = ", ".join(self.states[i] for i in self._returned or ())
        was = [
            f"{self.states[i]!r} was {described(self._engine, old[i], inside=True)}" for i in which
        ]
        keys = [it for it in names if it.endswith(("rng", "key"))]
        key = f"; a random key is given as {keys[0]}=rh.random_key" if keys else ""
        return ValueError(
            f"{got}, and {', '.join(was)}: return {order}, {{'loss': loss}}, in the order of the "
            f"parameters{key}"
        )

    def _line(self, returned: Any, old: Sequence[Any]) -> list[Names] | None:
        """Return ``outputs`` that would name all states in ``returned``, if any."""
        left = list(range(len(old)))

        def names_of(value: Any) -> Any:
            for i in sorted(left, key=lambda i: old[i] is not value):
                if self._conforms(i, old[i], value):
                    left.remove(i)
                    return self.states[i]
            before = len(left)
            parts = tuple(map(names_of, value)) if _is_plain(value) else ()
            return parts if len(left) < before else None

        if len(old) == 1 and self._conforms(0, old[0], returned):
            return [self.states[0]]
        if not _is_plain(returned) or len(returned) == 1:
            return None
        found = [names_of(element) for element in returned]
        if not set(left).isdisjoint(self._returned or ()):
            return None
        others = [name for name in nest.leaves(self.outputs) if name not in self.states]
        unnamed = [name is None for name in nest.leaves(found)].count(True)
        if len(others) != unnamed:
            others = ["loss"] if unnamed == 1 else [f"output_{i}" for i in range(unnamed)]
        names = iter(others)
        return list(nest.map_leaves(lambda it: it or next(names), found))

    def _conforms(self, i: int, old: Any, new: Any) -> bool:
        try:
            self._engine.conform(self.states[i], old, new)
        except (TypeError, ValueError):
            return False
        return True


def described(engine: Engine, value: Any, *, inside: bool = False) -> str:
    """Return ``value`` for messages, as ``(float32[32, 8], a dict of 9 arrays)``."""
    if value is None:
        return "None"
    leaves = engine.leaves(value)
    if inside and len(leaves) > _MANY:
        return f"{with_article(type(value).__name__)} of {len(leaves)} arrays"
    part = partial(described, engine, inside=True)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(part, value))
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {part(it)}" for k, it in value.items()) + "}"
    if list(leaves) != [""]:
        return f"{with_article(type(value).__name__)} with {list(leaves)}"
    try:
        form: tuple[tuple[int, ...], Any] | None = engine.host_form(leaves[""])
    except (AttributeError, TypeError):
        is_array = library_of(value) is not NO_LIBRARY  # of another one, if fed
        form = host_form(value) if is_array else None
    return with_article(type(value).__name__) if form is None else f"{form[1]}{list(form[0])}"


def _is_plain(value: Any) -> bool:
    return isinstance(value, tuple | list) and not hasattr(value, "_fields")


def _pairs(names: Names, value: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield ``names`` with what they name; None where a tuple of names does not fit."""
    if isinstance(names, str):
        yield names, value
    elif not isinstance(value, tuple | list) or len(value) != len(names):
        yield None, value
    else:
        for name, element in zip(names, value, strict=True):
            yield from _pairs(name, element)
