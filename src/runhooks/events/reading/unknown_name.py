"""``UnknownNameError``: a name under which nothing was written."""

from __future__ import annotations

from runhooks.near_names import suggestion

_MANY = 10


class UnknownNameError(KeyError):
    """A KeyError whose text, made when it is asked for, says which names there are."""

    def __init__(self, name: object, noun: str, known: tuple[str, ...]) -> None:
        super().__init__(name, noun, known)

    def __str__(self) -> str:
        name, noun, known = self.args
        if meant := suggestion(str(name), known):
            return f"no {noun} {name!r}{meant}"
        if not known:
            return f"no {noun} {name!r}: there is none at all"
        rest = f" and {len(known) - _MANY} more" if len(known) > _MANY else ""
        return f"no {noun} {name!r} among {', '.join(map(repr, known[:_MANY]))}{rest}"
