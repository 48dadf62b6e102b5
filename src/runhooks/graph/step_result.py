"""``ResultRule``: how the result of a step divides into the new states and the outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from runhooks.graph.engine import Engine
from runhooks.graph.step_shortcut import Shortcut, of_dict, of_tuple, of_whole
from runhooks.near_names import suggestion, with_article

#: A value inside a result that has more arrays is described by their number.
_MANY = 4


class StepResult(NamedTuple):
    """The result of a step, divided.

    Attributes:
        states: The new states, in the order of the parameters.
        outputs: The rest by name.
    """

    states: list[Any]
    outputs: dict[str, Any]


class _Place(NamedTuple):
    """Where the states may be in a result.

    Attributes:
        split: Returns the states in a result, and the values left over.
        at: The indices of the states, if they are elements of a tuple and were found by their form.
        by_name: Whether they are items of a dict with their names.
    """

    split: Callable[[Any], tuple[list[Any], list[Any]]]
    at: range = range(0)
    by_name: bool = False


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

    Attributes:
        shortcut: Divides results that are like the first; None: there is none.
    """

    def __init__(
        self, step: str, states: Sequence[str], outputs: Sequence[str], engine: Engine
    ) -> None:
        self._step = step
        self._states = states
        self._outputs = outputs
        self._engine = engine
        self._place: tuple[_Place, list[int]] | None = None
        self._first = ""  # what it returned the first time, in words
        self._kind: object = None
        self.shortcut: Shortcut | None = None

    def divide(self, returned: Any, old: Sequence[Any], changed: Sequence[bool]) -> StepResult:
        """Return the new states and the outputs in ``returned``.

        Args:
            returned: What the step returned.
            old: The states that it was called with.
            changed: Which of ``old`` it has changed in place; it need not return these.

        Raises:
            ValueError: If the states are not found in ``returned``, or have other shapes or
                dtypes; if more elements than the states have these; if the outputs do not have
                the names they were given; or if the first result was of another kind.
        """
        if self._place is None:
            self._place = self._find(returned, old, changed)
            self._first = self._described(returned)
            self._kind = self._kind_of(returned)
        place, wanted = self._place
        if wanted and self._kind_of(returned) != self._kind:
            raise ValueError(
                f"{self._step!r} returned {self._described(returned)}, and the first time "
                f"{self._first}: it must return the same elements in each run"
            )
        new, rest = place.split(returned)
        states = list(old)
        for i, state in zip(wanted, new, strict=True):
            states[i] = state
        outputs = self._named(rest)
        if self.shortcut is None and len(wanted) == len(states) and not any(changed):
            self.shortcut = self._shortcut(returned, new, outputs)
        return StepResult(states, outputs)

    def _shortcut(
        self, first: Any, new: Sequence[Any], outputs: Mapping[str, Any]
    ) -> Shortcut | None:
        assert self._place is not None
        place, _ = self._place
        if len(new) == 1 and new[0] is first:
            return of_whole(first)
        if place.by_name:
            return of_dict(first, self._states, outputs)
        return of_tuple(first, place.at, outputs) if place.at else None

    def _kind_of(self, returned: Any) -> object:
        """Return what is the same of all results: how many elements, or which states by name."""
        if isinstance(returned, tuple | list):
            return len(returned)
        return [it in returned for it in self._states] if isinstance(returned, Mapping) else None

    def _find(
        self, returned: Any, old: Sequence[Any], changed: Sequence[bool]
    ) -> tuple[_Place, list[int]]:
        everything = list(range(len(old)))
        rest = [i for i in everything if not changed[i]]
        for wanted in [everything, rest] if any(changed) else [rest]:
            if not wanted:
                return _Place(lambda returned: ([], _elements(returned))), wanted
            places = list(self._fitting(self._conforms, wanted, returned, old))
            if places:
                self._check_clear(places, wanted, old, returned)
                return places[0], wanted
        missing = self._missing(returned, rest, old)
        for place in self._fitting(self._has_same_paths, rest, returned, old) if missing else ():
            for i, state in zip(rest, place.split(returned)[0], strict=True):
                self._engine.conform(self._states[i], old[i], state)  # says what has changed
        raise self._not_found(returned, rest, missing, old)

    def _fitting(
        self, fits: Callable[..., bool], wanted: Sequence[int], returned: Any, old: Sequence[Any]
    ) -> Iterator[_Place]:
        for place in self._places([self._states[i] for i in wanted], returned):
            states = zip(wanted, place.split(returned)[0], strict=True)
            if all(fits(i, old[i], state) for i, state in states):
                yield place

    def _places(self, names: Sequence[str], returned: Any) -> Iterator[_Place]:
        n = len(names)
        if not set(names).isdisjoint(self._outputs):
            yield self._named_place(names, returned)
            return
        if n == 1:
            yield _Place(lambda it: ([it], []))
        if isinstance(returned, Mapping) and all(name in returned for name in names):
            yield _Place(lambda it: _items(names, it), by_name=True)
        if not isinstance(returned, tuple | list):
            return
        size = len(returned)
        if size >= n:
            yield _Place(lambda it: (list(it[:n]), list(it[n:])), range(n))
        if size > n:
            yield _Place(lambda it: (list(it[-n:]), list(it[:-n])), range(size - n, size))
        if n > 1:
            if size and _is_tuple_of(n, returned[0]):
                yield _Place(lambda it: (list(it[0]), list(it[1:])))
            if size > 1 and _is_tuple_of(n, returned[-1]):
                yield _Place(lambda it: (list(it[-1]), list(it[:-1])))

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

    def _check_clear(
        self, places: Sequence[_Place], wanted: Sequence[int], old: Sequence[Any], returned: Any
    ) -> None:
        """Raise ValueError if what is no state at the first of ``places`` could be one."""
        with_arrays = [i for i in wanted if self._engine.leaves(old[i])]
        at = places[0].at
        for i in with_arrays if at else ():
            like = [k for k, it in enumerate(returned) if self._conforms(i, old[i], it)]
            if not set(like).issubset(at):
                raise self._ambiguous(i, like, dict(zip(at, wanted, strict=True)), returned)
        if len(places) > 1 and with_arrays:
            names = " and ".join(repr(self._states[i]) for i in wanted)
            raise ValueError(
                f"{names} may be in several places of what {self._step!r} returns, "
                f"{self._described(returned)}: return them one by one, and name each element of "
                "the result in outputs=[...]"
            )

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

    def _ambiguous(
        self, i: int, like: Sequence[int], found: Mapping[int, int], returned: Any
    ) -> ValueError:
        others = [k for k in range(len(returned)) if k not in found]
        given = self._outputs if len(self._outputs) == len(others) else ()
        names = dict(zip(others, given or [f"output_{k}" for k in others], strict=True))
        names |= {k: self._states[state] for k, state in found.items()}
        return ValueError(
            f"{self._states[i]!r} may be element {' or '.join(map(str, like))} of what "
            f"{self._step!r} returns, {self._described(returned)}: name all elements in their "
            f"order, such as outputs={[names[k] for k in range(len(returned))]}"
        )

    def _not_found(
        self, returned: Any, wanted: Sequence[int], missing: Sequence[int], old: Sequence[Any]
    ) -> ValueError:
        names = [self._states[i] for i in wanted]
        order = f"return {', '.join(names)}, {{'loss': loss}}"
        got = f"It returned {self._described(returned)}"
        if not missing:
            return ValueError(
                f"{self._step!r} must return its new states in the order of its parameters: "
                f"{order}. {got}"
            )
        shown = " and ".join(repr(self._states[i]) for i in missing)
        if len(missing) < len(names):
            keys = [it for it in names if it.endswith(("rng", "key")) and repr(it) in shown]
            cure = f"; a random key is given as {keys[0]}=rh.random_key" if keys else ""
            return ValueError(
                f"{self._step!r} does not return the new {shown}: {order}. {got}{cure}"
            )
        was = " and ".join(self._described(old[i], inside=True) for i in missing)
        was = f"was {was}" if len(missing) == 1 else f"were {was}"
        return ValueError(
            f"{self._step!r} must return the new {shown} first: {order}. {got}, in which nothing "
            f"has the structure, shapes and dtypes of the old, which {was}"
        )

    def _missing(self, returned: Any, wanted: Sequence[int], old: Sequence[Any]) -> list[int]:
        """Return which of the states ``wanted`` are nowhere in ``returned``."""
        is_dict = isinstance(returned, Mapping)
        left = list(returned.values()) if is_dict else _elements(returned)
        left += [part for it in left for part in (it if isinstance(it, tuple) else ())]
        missing = []
        for i in wanted:
            like = next((k for k, it in enumerate(left) if self._conforms(i, old[i], it)), None)
            if like is None:
                missing.append(i)
            else:
                del left[like]
        return missing

    def _described(self, value: Any, *, inside: bool = False) -> str:
        if value is None:
            return "None"
        leaves = self._engine.leaves(value)
        if inside and len(leaves) > _MANY:
            return f"{with_article(type(value).__name__)} of {len(leaves)} arrays"
        part = partial(self._described, inside=True)
        if isinstance(value, tuple | list):
            inner = ", ".join(map(part, value))
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k!r}: {part(it)}" for k, it in value.items()) + "}"
        if list(leaves) != [""]:
            return f"{with_article(type(value).__name__)} with {list(leaves)}"
        try:
            shape, dtype = self._engine.host_form(leaves[""])
        except (AttributeError, TypeError):
            return with_article(type(value).__name__)
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
