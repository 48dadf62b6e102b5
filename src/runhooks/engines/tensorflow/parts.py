"""Variables of a ``tf.Graph``, read and assigned between runs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from runhooks.near_names import suggestion

v1 = tf.compat.v1


def read(session: Any, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """As ``RawSession.read``; makes a run."""
    below = f"{name}/"
    known = _variables(session)
    found = {key: it for key, it in known.items() if key == name or key.startswith(below)}
    if not found:
        raise _unknown(name, known)
    return _values(session, found)


def read_all(session: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the values of all global variables by name; makes a run."""
    return _values(session, _variables(session))


def assign(session: Any, values: Mapping[str, Any]) -> None:
    """As ``RawSession.assign``; makes a run, of the initializers, with other values."""
    known = _variables(session)
    for name in values:
        if name not in known:
            raise _unknown(name, known)
    initializers = {name: known[name].initializer for name in values}
    feeds = {initializers[name].inputs[1]: value for name, value in values.items()}
    session.run_plainly(list(initializers.values()), feeds)


def _values(session: Any, variables: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    values = session.run_plainly(list(variables.values()))
    return {name: np.asarray(value) for name, value in zip(variables, values, strict=True)}


def _variables(session: Any) -> dict[str, Any]:
    with session.graph.as_default():
        return {variable.op.name: variable for variable in v1.global_variables()}


def _unknown(name: str, known: Mapping[str, Any]) -> ValueError:
    return ValueError(f"no variable is named {name!r}{suggestion(name, known)}")
