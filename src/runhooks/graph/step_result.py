"""``ResultRule``: how the result of a step divides into the new states and the outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from runhooks.graph.engine import Engine
from runhooks.near_names import suggestion


class StepResult(NamedTuple):
    """The result of a step, divided.

    Attributes:
        states: The new states, in the order of the parameters.
        outputs: The rest by name.
    """

    states: list[Any]
    outputs: dict[str, Any]


class _Place(NamedTuple):
    """Where the states may be in a result: ``split`` returns them, and the values left over."""

    text: str
    split: Callable[[Any], tuple[list[Any], list[Any]]]


class ResultRule:
    """Divides what a step returns. The first result decides how; those that follow are alike.

    The new states are found by their structure, shapes and dtypes: the result itself, the items of
    a dict with their names, or the first or else the last elements, one by one or as one tuple.

    Args:
        step: The name of the step, for messages.
        states: The names of its states, in the order of the parameters.
        outputs: Names for what else it returns, in order; or for all elements of the result, if
            there are those of states among them.
        engine: Compares states.
    """

    def __init__(
        self, step: str, states: Sequence[str], outputs: Sequence[str], engine: Engine
    ) -> None:
        self._step = step
        self._states = states
        self._outputs = outputs
        self._engine = engine
        self._place: tuple[_Place, list[int]] | None = None

    def divide(self, returned: Any, old: Sequence[Any], changed: Sequence[bool]) -> StepResult:
        """Return the new states and the outputs in ``returned``.

        Args:
            returned: What the step returned.
            old: The states that it was called with.
            changed: Which of ``old`` it has changed in place; it need not return these.

        Raises:
            ValueError: If the states are not found in ``returned``, or have other shapes or
                dtypes, or if the outputs do not have the names they were given.
        """
        if self._place is None:
            self._place = self._find(returned, old, changed)
        place, wanted = self._place
        new, rest = place.split(returned)
        states = list(old)
        for i, state in zip(wanted, new, strict=True):
            states[i] = state
        return StepResult(states, self._named(rest))

    def _find(
        self, returned: Any, old: Sequence[Any], changed: Sequence[bool]
    ) -> tuple[_Place, list[int]]:
        everything = list(range(len(old)))
        rest = [i for i in everything if not changed[i]]
        fits_exactly, fits_roughly = self._conforms, self._has_same_paths
        attempts = [(everything, fits_exactly), (rest, fits_exactly), (rest, fits_roughly)]
        for wanted, fits in attempts if any(changed) else attempts[1:]:
            if not wanted:
                return _Place("", lambda returned: ([], _elements(returned))), wanted
            names = [self._states[i] for i in wanted]
            places = [
                place
                for place in self._places(names, returned)
                if all(fits(i, old[i], it) for i, it in zip(wanted, place.split(returned)[0]))  # noqa: B905
            ]
            is_sure = fits is fits_roughly or not self._is_one_array([old[i] for i in wanted])
            if len(places) > 1 and not is_sure:
                raise self._ambiguous(names[0], places, returned)
            if places and fits is fits_roughly:
                self._check(wanted, old, places[0].split(returned)[0])
            if places:
                return places[0], wanted
        raise self._not_found(returned, [self._states[i] for i in rest])

    def _places(self, names: Sequence[str], returned: Any) -> Iterator[_Place]:
        n = len(names)
        if not set(names).isdisjoint(self._outputs):
            yield self._named_place(names, returned)
            return
        if n == 1:
            yield _Place("the result", lambda it: ([it], []))
        if isinstance(returned, Mapping) and all(name in returned for name in names):
            yield _Place(f"the items {list(names)}", lambda it: _items(names, it))
        if not isinstance(returned, tuple | list):
            return
        size = len(returned)
        if size >= n:
            yield _Place("the first", lambda it: (list(it[:n]), list(it[n:])))
        if size > n:
            yield _Place("the last", lambda it: (list(it[-n:]), list(it[:-n])))
        if n > 1:
            if size and _is_tuple_of(n, returned[0]):
                yield _Place("the first", lambda it: (list(it[0]), list(it[1:])))
            if size > 1 and _is_tuple_of(n, returned[-1]):
                yield _Place("the last", lambda it: (list(it[-1]), list(it[:-1])))

    def _named_place(self, names: Sequence[str], returned: Any) -> _Place:
        named = list(self._outputs)
        elements = _elements(returned)
        if missing := [name for name in names if name not in named]:
            raise ValueError(
                f"outputs names states of {self._step!r}, and lacks {missing}: name each element "
                f"of the result, {self._described(returned)}"
            )
        if len(elements) != len(named):
            raise ValueError(
                f"outputs must name each element of what {self._step!r} returns, "
                f"{self._described(returned)}, got {named}"
            )
        places = [named.index(name) for name in names]
        rest = [i for i in range(len(named)) if i not in places]
        return _Place(
            "the names",
            lambda it: (
                [_elements(it)[i] for i in places],
                [_elements(it)[i] for i in rest],
            ),
        )

    def _conforms(self, i: int, old: Any, new: Any) -> bool:
        try:
            self._engine.conform(self._states[i], old, new)
        except (TypeError, ValueError):
            return False
        return True

    def _has_same_paths(self, i: int, old: Any, new: Any) -> bool:
        return self._engine.leaves(old).keys() == self._engine.leaves(new).keys()

    def _check(self, wanted: Sequence[int], old: Sequence[Any], new: Sequence[Any]) -> None:
        for i, state in zip(wanted, new, strict=True):
            self._engine.conform(self._states[i], old[i], state)

    def _is_one_array(self, states: Sequence[Any]) -> bool:
        return sum(len(self._engine.leaves(state)) for state in states) == 1

    def _named(self, rest: Sequence[Any]) -> dict[str, Any]:
        names = [name for name in self._outputs if name not in self._states]
        rest = [value for value in rest if value is not None]
        fields = _fields(rest[0]) if len(rest) == 1 else None
        if fields is not None and fields.keys() >= set(names):
            return fields
        if not names:
            names = ["output"] if len(rest) == 1 else [f"output/{i}" for i in range(len(rest))]
        for values in (rest, _elements(rest[0]) if len(rest) == 1 else []):
            if len(names) == len(values):
                return dict(zip(names, values, strict=True))
        unknown = next((name for name in names if fields is not None and name not in fields), None)
        near = "" if unknown is None else suggestion(unknown, fields or ())
        raise ValueError(
            f"outputs must name what {self._step!r} returns beside its states, "
            f"{self._described(tuple(rest))}, got {names}{near}"
        )

    def _ambiguous(self, name: str, places: Sequence[_Place], returned: Any) -> ValueError:
        texts = " or ".join(dict.fromkeys(place.text for place in places))
        return ValueError(
            f"{name!r} may be {texts} of what {self._step!r} returns, {self._described(returned)}: "
            f"name each element in its order, as in outputs=[{name!r}, 'loss']"
        )

    def _not_found(self, returned: Any, names: Sequence[str]) -> ValueError:
        shown = " and ".join(repr(name) for name in names)
        order = ", ".join(names)
        return ValueError(
            f"{self._step!r} must return the new {shown} first: return {order}, "
            f"{{'loss': loss}}. It returned {self._described(returned)}, in which nothing has the "
            "structure, shapes and dtypes of the old"
        )

    def _described(self, value: Any) -> str:
        if value is None:
            return "None"
        if isinstance(value, tuple | list):
            inner = ", ".join(map(self._described, value))
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k!r}: {self._described(v)}" for k, v in value.items()) + "}"
        leaves = self._engine.leaves(value)
        if list(leaves) != [""]:
            return f"a {type(value).__name__} with {list(leaves)[:5]}"
        try:
            shape, dtype = self._engine.host_form(leaves[""])
        except (AttributeError, TypeError):
            return f"a {type(value).__name__}"
        return f"{dtype}{list(shape)}"


def _items(names: Sequence[str], returned: Any) -> tuple[list[Any], list[Any]]:
    rest = {key: value for key, value in returned.items() if key not in names}
    return [returned[name] for name in names], [rest]


def _is_tuple_of(n: int, value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == n


def _elements(returned: Any) -> list[Any]:
    is_plain = isinstance(returned, tuple | list) and not hasattr(returned, "_fields")
    return list(returned) if is_plain else [returned]


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the values in a dict, a named tuple or a dataclass by name; None of others."""
    if isinstance(value, Mapping):
        return {str(key): it for key, it in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {it.name: getattr(value, it.name) for it in dataclasses.fields(value)}
    return None
