"""The parameters of a user's step: which are given, and which are states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection

from runhooks.near_names import suggestion

#: Parameters that get the global step.
STEPS = ("global_step", "step")
#: Parameters that get a random key.
KEYS = ("key", "rng")


def name_of(fn: Callable[..., object]) -> str:
    """Return the name of ``fn``, for messages."""
    return str(getattr(fn, "__name__", type(fn).__name__)).strip("<>")


def given_parameters(fn: Callable[..., object], states: Collection[str]) -> list[inspect.Parameter]:
    """Return the parameters of ``fn`` that are given: ``states``, and those without a default.

    A default of None leaves it open what one of ``STEPS`` or ``KEYS`` is: it is given too.
    Those that stand behind one that is left out are keyword-only.

    Raises:
        TypeError: If one of ``states`` is not a parameter of ``fn``.
    """
    parameters = inspect.signature(fn).parameters
    plain = [it for it in parameters.values() if it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)]
    names = [it.name for it in plain]
    for state in states:
        if state not in names:
            raise TypeError(
                f"{state!r} is not a parameter of {_shown(fn)}: name what the step takes and "
                f"returns anew by its parameter{suggestion(state, names)}"
            )
    found: list[inspect.Parameter] = []
    in_place = True
    for it in plain:
        is_open = it.default is None and it.name in (*STEPS, *KEYS)
        if it.name in states or it.default is it.empty or is_open:
            found.append(it if in_place else it.replace(kind=it.KEYWORD_ONLY))
        else:
            in_place = False
    return found


def no_states(fn: Callable[..., object]) -> TypeError:
    """Return the error that no state of ``fn`` is named."""
    first = next(iter(inspect.signature(fn).parameters), "state")
    return TypeError(
        f"name what {_shown(fn)} takes and returns anew by its parameter, such as {first}=..."
    )


def _shown(fn: Callable[..., object]) -> str:
    stars: dict[object, str]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(fn).parameters.values()
    return f"{name_of(fn)}({', '.join(stars.get(it.kind, '') + it.name for it in parameters)})"
