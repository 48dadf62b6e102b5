"""``Passes``: the way through an iterable, epoch after epoch."""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass
from itertools import islice
from typing import Any, NamedTuple

from runhooks.errors import add_note, described
from runhooks.graph.generators import InputGenerators, holders, is_container

_METHODS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class Keeper(NamedTuple):
    """The methods of a stateful object, whose states are copied: they may be views."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]

    def save(self) -> Any:
        return copy.deepcopy(self.get())

    def load(self, position: Any) -> None:
        self.set(copy.deepcopy(position))


def keeper_of(part: Any) -> Keeper | None:
    for names in _METHODS:
        get, set_ = (getattr(part, name, None) for name in names)
        if callable(get) and callable(set_):
            return Keeper(get, set_)
    return None


_log = logging.getLogger("runhooks")


class EndedByError(StopIteration):
    """There is no further element right after an error, which its text says."""


@dataclass(eq=False, repr=False)  # of all data, else
class Passes:
    """Draws from ``elements`` up to ``epochs`` times, of which ``done`` are done.

    ``is_between``: the next has yet to begin. ``random``: states for ``generators``.
    """

    _name: str
    _elements: Iterable[Any]
    _own_keeper: Keeper | None
    _first: Any
    _epochs: int | None
    _done: int
    is_between: InitVar[bool]
    _generators: InputGenerators | None
    _random: Mapping[str, Any]
    _arrange: Callable[[Any], Any] | None

    def __post_init__(self, is_between: bool) -> None:
        self._count = Count()
        self._failed: list[int] = []  # the numbers of errors in this epoch
        self._has_failed = False  # the last one was, and counts once the program goes on
        self._last_error: str | None = None
        self._goes_by_count = False
        self._ahead: deque[_Ahead] = deque()
        self.length = length_of(self._elements)  # of this epoch
        self.warns_if_empty = False
        self._has_warned_of_length = False
        self.failure: str | None = None  # how an error has ended this epoch
        self.others_go_by_length = False  # fewer elements are an error
        self._is_whole = True  # all elements of this epoch were counted here
        elements, keeper, generators = self._elements, self._own_keeper, self._generators
        if generators is not None and self._random:
            if keeper is None and self._done and getattr(elements, "persistent_workers", False):
                iter(elements)  # the first epoch started workers and drew their seed
                _warn_of_order(elements)
            generators.go_to(self._random, "epoch")
            generators.note("epoch")
        self._iterator: Iterator[Any] | None = None if is_between else self._iterate()
        self._is_fresh = is_between or (keeper is None and generators is not None)

    @property
    def keeper(self) -> Keeper | None:
        """What knows the position in this epoch, if it is not the count."""
        if self._goes_by_count:
            return None
        own, of_iterator = self._own_keeper, keeper_of(self._iterator)
        if own is None or of_iterator is None:
            return own or of_iterator
        # A loader tells of its newest iterator, which may be that of an evaluation.
        return Keeper(of_iterator.get, own.set)

    @property
    def progress(self) -> Progress:
        drawn = self._count.elements + self._has_failed
        return Progress(self._done, drawn, self.length, self._found_end)

    @property
    def _found_end(self) -> bool:
        return bool(self._ahead) and self._ahead[0].is_end

    @property
    def next_is_last(self) -> bool:
        """Whether the next element is the last of this epoch, by a look behind it."""
        self.look_ahead(2)
        return len(self._ahead) == 2 and self._ahead[1].is_end

    def go_by_count(self, count: Count) -> None:
        """Let ``count``, of the elements of this epoch, be its position."""
        self._count, self._goes_by_count = count, True

    def skip(self, elements: int, failed: Collection[int] = (), ahead: int = 0) -> None:
        """Draw so many ``elements``, or as many as this epoch has; look ``ahead``, as before.

        Raises errors whose numbers are not in ``failed``, and RuntimeError if the iterator has
        ended with one, and elements are missing.
        """
        generators = self._generators
        if generators is not None and elements:
            generators.go_to(self._random, "first")
            self._begin_elements()
        error: Exception | None = None
        while self._iterator is not None and self._count.elements < elements:
            try:
                next(self._iterator)
            except StopIteration:
                if error is None:
                    break
                raise RuntimeError(
                    f"{elements} elements of this epoch were drawn before, and it now ends after "
                    f"{self._count.elements}, the last of which is an error: {described(error)}. "
                    "Let the iterator go on after it, which a generator cannot, or train on from "
                    "the weights alone, with rh.InitFrom"
                ) from error
            except Exception as raised:
                number = self._count.elements + 1
                if number not in failed:
                    add_note(
                        raised,
                        f"in place of element {number} of this epoch, which must be readable to be "
                        f"skipped, as {elements} were drawn before. Or train on from the weights "
                        "alone, with rh.InitFrom",
                    )
                    raise
                error = raised
                self._failed.append(number)
            self._count_one()
        for count in range(1, ahead + 1):
            if generators is not None:
                generators.go_to(self._random, f"ahead {count}")
            self.look_ahead(count)
        if generators is not None:
            generators.go_to(self._random)

    def note_drawn(self, elements: int) -> None:
        """Note that so many ``elements`` of this epoch were drawn before."""
        self._count.elements = elements
        self._is_whole = not elements

    def look_ahead(self, elements: int) -> None:
        """Keep the next ``elements`` of this epoch for runs, up to its end or an error."""
        if self._done == self._epochs or self._iterator is None:
            return
        self._go_behind_error()
        keeper, generators = self.keeper, self._generators
        while len(self._ahead) < elements and not (self._ahead and self._ahead[-1].error):
            place = None if keeper is None else keeper.save()
            ahead = _Ahead(place, generators and generators.read())
            try:
                ahead.element = self._next()
            except Exception as error:  # noqa: BLE001 - raised in the run that asks for the element
                ahead.error = error
            self._ahead.append(ahead)

    def position(self) -> dict[str, Any] | None:
        keeper = self.keeper
        if keeper is None and not self._goes_by_count and self._epochs == 1:
            return None
        if self._goes_by_count and self._found_end:
            # Not to be looked for again, in data of another length.
            told: dict[str, Any] = {"ended": True, "drawn": 0, "epoch": self._done + 1}
        else:
            told = self._place(keeper)
        if self.length is not None:
            told["length"] = self.length
        before = {f"ahead {n}": it.random for n, it in enumerate(self._ahead, 1) if it.random}
        if self._generators is not None and (random := self._generators.position(before)):
            told["random"] = random
        return told

    def _place(self, keeper: Keeper | None) -> dict[str, Any]:
        has_ended = self._done == self._epochs
        told: dict[str, Any] = {"drawn": self._count.elements}
        if self._failed:
            told["failed"] = list(self._failed)
        # Where an iterator has ended, the next one does not begin.
        if keeper is not None and (keeper is self._own_keeper or not has_ended):
            told["state"] = self._ahead[0].place if self._ahead else keeper.save()
            told["drawn"] += self._has_failed  # it has gone behind an error
            if self._first is not None:
                told["first"] = self._first
        if self._ahead:
            told["ahead"] = len(self._ahead)
        if self._done:
            told["epoch"] = self._done
        if has_ended or self._iterator is None:
            told["ended"] = True
        return told

    def draw(self) -> Any:
        """Return the next element, arranged; StopIteration: there is none."""
        if self._done == self._epochs:
            raise self._end()
        self._go_behind_error()
        try:
            element = self._element()
        except StopIteration:
            if self.warns_if_empty:
                self._done += 1
                _log.warning("the input %r has no elements", self._name)
                raise
            element = self._first_of_next_epoch()
        self._count_one()
        return element if self._arrange is None else self._arrange(element)

    def begin_next(self) -> None:
        """Begin the next epoch, if there is one, where this one is at its end."""
        if self._iterator is None and self._done != self._epochs:
            self._begin_elements()
        elif self.progress.is_at_end:
            self.look_ahead(1)  # a loader may tell too small a length
            if self._ahead and self._ahead[0].is_end:
                self._ahead.clear()
                if self._end_epoch():
                    self._begin_elements()

    def _element(self) -> Any:
        if not self._ahead and self._is_fresh:
            self._begin_elements()
        try:
            return self._ahead.popleft().take() if self._ahead else self._next()
        except StopIteration:
            raise
        except Exception:
            self._has_failed = True
            raise

    def _go_behind_error(self) -> None:
        """Count the last element if it was an error, which the program has caught."""
        if self._has_failed:
            self._has_failed = False
            self._count_one()
            self._failed.append(self._count.elements)

    def _first_of_next_epoch(self) -> Any:
        while self._end_epoch():
            with suppress(StopIteration):
                return self._element()
            if self._epochs is None:  # it may be empty for ever
                break
        raise self._end()

    def _end(self) -> StopIteration:
        return StopIteration() if self.failure is None else EndedByError(self.failure)

    def _end_epoch(self) -> bool:
        """Return whether another epoch is yet to begin."""
        if self.length is not None and self._count.elements < self.length:
            if self.others_go_by_length:
                raise RuntimeError(
                    f"epoch {self._done + 1} of the data has ended after {self._count.elements} "
                    f"elements, and hooks of all ranks go by its len(), {self.length}: correct "
                    "its __len__, or give steps_per_epoch"
                )
            if self.failure is None:
                self._warn_of_length("no more than")
        self._done += 1
        self._count.elements, self._failed, self._is_whole = 0, [], True
        if self._done == self._epochs:
            return False
        self._iterator, self._is_fresh = None, True
        self._last_error = self.failure = None
        return True

    def _next(self) -> Any:
        if self._is_fresh:
            self._begin_elements()
        assert self._iterator is not None, "an epoch has begun"
        try:
            element = next(self._iterator)
        except StopIteration:
            self._note_end()
            raise
        except Exception as error:
            self._last_error = described(error)  # the error would keep its frames
            raise
        self._last_error = None
        return element

    def _note_end(self) -> None:
        if self._last_error is None or self._count.elements == self.length:
            return
        self.failure = f"ended after it raised {self._last_error}"
        left = "it" if self._epochs == 1 else f"its epoch {self._done + 1}"
        _log.warning(
            "the input %r %s: a generator ends with an error that it raises, and what was left of "
            "%s is lost. Catch the error inside the generator, or give an iterable that goes on",
            *(self._name, self.failure, left),
        )

    def _count_one(self) -> None:
        self.warns_if_empty = False
        self._count.elements += 1
        if self.length is not None and self._count.elements > self.length:
            self._warn_of_length("at least")

    def _warn_of_length(self, bound: str) -> None:
        if not self._has_warned_of_length and self._is_whole:
            _log.warning(
                "the input %r has %s %d elements in an epoch, and its len() is %d, which hooks go "
                "by. Correct its __len__, or leave that out",
                *(self._name, bound, self._count.elements, self.length),
            )
            self._has_warned_of_length = True

    def _begin_elements(self) -> None:
        is_new = self._iterator is None
        if self._generators is not None:
            self._generators.note("epoch" if is_new else "first")
        if is_new:
            self._iterator = self._iterate()
        self._is_fresh = False

    def _iterate(self) -> Iterator[Any]:
        if self._epochs != 1:  # else the program counts epochs itself
            for holder in _epoch_holders(self._elements):
                holder.set_epoch(self._done)
        self.length = length_of(self._elements)
        if is_container(self._elements):  # a hook may add to it at the end
            return islice(self._elements, self.length)
        return iter(self._elements)


class Progress(NamedTuple):
    """Epochs ``done``, and elements ``drawn`` in the present one.

    ``length``: how many that has, if known. ``found_end``: a look ahead found no further one.
    """

    done: int
    drawn: int
    length: int | None
    found_end: bool = False

    @property
    def is_at_end(self) -> bool:
        return self.found_end or (self.length is not None and 0 < self.length <= self.drawn)

    @property
    def is_inside(self) -> bool:
        return self.drawn > 0 and not self.is_at_end


@dataclass(slots=True, eq=False)
class _Ahead:
    """An element, or an error in its place, drawn before a run asks for it.

    ``place`` is the state of a stateful input before that, ``random`` that of generators.
    """

    place: Any
    random: Any
    element: Any = None
    error: Exception | None = None

    @property
    def is_end(self) -> bool:
        return isinstance(self.error, StopIteration)

    def take(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.element


@dataclass(slots=True, eq=False)
class Count:
    """A number of elements; the one of an iterator is the same in all sessions."""

    elements: int = 0


def length_of(elements: Any) -> int | None:
    try:
        return len(elements)
    except (AttributeError, NotImplementedError, TypeError):  # a loader of an iterable has none
        return None


def _epoch_holders(elements: Any) -> list[Any]:
    outer, *inner = [it for _, it in holders(elements)]
    found = [it for it in inner if callable(getattr(it, "set_epoch", None))]
    return [outer] if callable(getattr(outer, "set_epoch", None)) else found


def _warn_of_order(loader: Any) -> None:
    kinds = [kind.__name__ for _, it in holders(loader) for kind in type(it).__mro__]
    if "IterableDataset" in kinds:
        _log.warning(
            "no checkpoint has the random numbers of persistent workers: an IterableDataset that "
            "shuffles in them goes on in another order. Leave persistent_workers out to resume "
            "exactly"
        )
