"""Hyperparameters with the record of the experiment that lists them, as torch writes them.

Field numbers are those of ``plugins/hparams/plugin_data.proto`` and ``api.proto`` of TensorBoard,
and of ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runhooks.arrays.values import is_array, to_numpy
from runhooks.events.format import wire
from runhooks.events.format.wire import int_field, text_field
from runhooks.summary.message import SummaryMetadata, Value, entry

_EXPERIMENT, _START, _END = 2, 3, 4
_TAGS = {
    _EXPERIMENT: "_hparams_/experiment",
    _START: "_hparams_/session_start_info",
    _END: "_hparams_/session_end_info",
}
_SUCCESS = 1
_STRING, _NUMBER = 1, 3  # of DataType
_METADATA = 9


class _Kind(NamedTuple):
    data_type: int
    encode: Callable[[Any], bytes]


_TEXT = _Kind(_STRING, lambda value: wire.bytes_field(3, value.encode()))
_FLOAT = _Kind(_NUMBER, lambda value: wire.double_field(2, float(value)))


def experiment_values(
    hparams: Mapping[str, Any],
    metrics: Sequence[str],
    domains: Mapping[str, Sequence[Any]] | None = None,
) -> list[Value]:
    """Return the records of one run: of the experiment, the start of the session, and its end.

    Args:
        hparams: Numbers, bools (which are written as numbers), strs, functions or classes (their
            names), or arrays of one number, by name; None is left out.
        metrics: The tags of the scalars that say how well the run did.
        domains: All the values that a hyperparameter may have, by name, of its own type.

    Raises:
        TypeError: An argument is something else, or a domain has values of another type.
        ValueError: A hyperparameter is none of these.
    """
    if not isinstance(hparams, Mapping):
        raise TypeError(f"hparam_dict must be a dict of values by name, got {hparams!r}")
    _check_domains(hparams, domains or {})
    infos, starts = [], []
    for name, value in hparams.items():
        if value is None:
            continue
        kind, plain = _plain(name, value)
        listed = [wire.bytes_field(1, kind.encode(one)) for one in (domains or {}).get(name, ())]
        domain = wire.bytes_field(5, b"".join(listed)) if listed else b""
        infos.append(text_field(1, name) + int_field(4, kind.data_type) + domain)
        starts.append(text_field(1, name) + wire.bytes_field(2, kind.encode(plain)))
    tags = [wire.bytes_field(1, text_field(2, tag)) for tag in metrics]
    experiment = [wire.bytes_field(4, info) for info in infos]
    experiment += [wire.bytes_field(5, tag) for tag in tags]
    return [
        _record(_EXPERIMENT, b"".join(experiment)),
        _record(_START, b"".join(wire.bytes_field(1, start) for start in starts)),
        _record(_END, int_field(1, _SUCCESS)),
    ]


def _check_domains(hparams: Mapping[str, Any], domains: Mapping[str, Any]) -> None:
    if not isinstance(domains, Mapping):
        raise TypeError(f"hparam_domain_discrete must be a dict of lists by name, got {domains!r}")
    for name, domain in domains.items():
        if name not in hparams:
            raise TypeError(
                f"hparam_domain_discrete has {name!r}, which is none of the hyperparameters "
                f"{', '.join(map(repr, hparams))}"
            )
        kind = type(hparams[name])
        if not isinstance(domain, list) or not all(isinstance(one, kind) for one in domain):
            raise TypeError(
                f"hparam_domain_discrete[{name!r}] must be a list of {kind.__name__}, as the "
                f"hyperparameter is, got {domain!r}"
            )


def _plain(name: str, value: Any) -> tuple[_Kind, Any]:
    if isinstance(value, str):
        return _TEXT, value
    if isinstance(value, int | float):
        return _FLOAT, value
    if callable(value) and not is_array(value):
        return _TEXT, getattr(value, "__name__", str(value))
    array = to_numpy(value) if is_array(value) else None
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"the hyperparameter {name!r} must be a bool, a number, a str, a function or an array "
            f"of one number, got {value!r}"
        )
    return _FLOAT, array.item()


def _record(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", wire.bytes_field(kind, content))
    return Value(_TAGS[kind], metadata.SerializeToString(), _encode)


def _encode(tag: str, metadata: bytes) -> bytes:
    return entry(tag, wire.bytes_field(_METADATA, metadata))
