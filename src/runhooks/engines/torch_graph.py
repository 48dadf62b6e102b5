"""``rh.torch.Graph``: a graph around modules and optimizers that its steps change in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from runhooks.engines.torch_names import Values
from runhooks.engines.torch_parts import TorchParts
from runhooks.engines.torch_step import StepEngine, output_of, step_function
from runhooks.graph import names
from runhooks.graph.build import placeholder
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.graph import Graph as BaseGraph
from runhooks.graph.graph import get_default_graph
from runhooks.graph.parts import OUTPUT, STEP
from runhooks.graph.tensor import Operation, Tensor

#: Whose names mean the value, where those of other operations mean the operation.
_VALUES = (OUTPUT, "Placeholder")


class Graph(BaseGraph):
    """A graph whose steps, added with ``step``, are your own functions and change ``parts``.

    ``parts``: what the steps change, by name: modules, optimizers, schedulers, gradient scalers,
    loaders; anything with ``state_dict`` and ``load_state_dict``, or with ``get_state`` and
    ``set_state``, as a ``torch.Generator``. Checkpoints hold their states, the states of the random
    generators of torch (CPU and CUDA), NumPy and Python, and the gradients that steps which do not
    count have accumulated. Names take letters, digits and ``_``.

    Whatever has a name can be fetched by it in any run, by any hook, and ``graph[name]`` is it as a
    tensor:

    - ``"loss"``: an output of a step;
    - ``"model/conv1.weight"``: a parameter or a buffer as it was when the run began, and
      ``"optimizer/learning_rate"``, or ``"learning_rate"`` if there is one optimizer: a number; a
      list of one for each group where these differ; ``"optimizer/learning_rate/1"``: of one group;
      ``"scaler/scale"`` of a ``GradScaler``, which waits for its device;
    - ``"gradients/model/conv1.weight"``: a gradient as the optimizer was about to apply it, after
      clipping, or as the step has left it if it called no optimizer; ``"global_gradient_norm"``;
    - ``"activations/model/conv1"``: what a submodule returned when it was called last.

    ``"model"`` and ``"model/conv1"`` are all parameters and buffers of a module in a dict by name,
    ``"gradients/model"`` likewise. What is fetched is detached, a copy of its own, and on its
    device. Nothing is captured in runs that do not ask for it. Those that ask for activations, or
    for gradients where the step itself is compiled, run what ``torch.compile`` compiled eagerly;
    nothing is compiled for them.

    A run makes the steps that its fetches need. A hook starts none: what it asks for that needs a
    step which the fetches of ``run`` do not make is put off to the next run that makes it.
    An ``EvaluationHook`` leaves random generators, and modules in train or eval mode, as they were.

    Raises TypeError for a part without these methods, ValueError for a name that parts cannot have.
    """

    parts: TorchParts

    def __init__(self, **parts: Any) -> None:
        own = TorchParts(parts)
        super().__init__(StepEngine(own))
        self.parts = own
        self._values = Values(self, own)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor that ``name`` means; ValueError if nothing has that name."""
        element = self.as_graph_element(name)
        if isinstance(element, Tensor):
            return element
        if not element.outputs:
            raise ValueError(f"the operation {name!r} has no value: fetch it to have it done")
        return element.outputs[0]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        if not isinstance(element, str):
            return super().as_graph_element(element)
        operation, _, index = element.rpartition(":")
        if not self.has_operation(operation if index.isdecimal() else element):
            return self._values.find(element)
        found = super().as_graph_element(element)
        if isinstance(found, Operation) and found.type in _VALUES:
            return found.outputs[0]
        return found

    def get_tensor_by_name(self, name: str) -> Tensor:
        try:
            return super().get_tensor_by_name(name)
        except KeyError:
            if not name.endswith(":0"):
                raise
        try:
            return self._values.find(name)
        except ValueError as error:
            raise KeyError(error.args[0]) from None

    def check_new(self, argument: str, name: str) -> None:
        """Raise ValueError if ``name``, under the scope, already means a value of a part."""
        if self._values.has(self.scope + name):
            raise ValueError(
                f"{argument} must not have the name of a part, or of what is fetched of one: got "
                f"{name!r}"
            )

    def note_defaulted(self, parameter: str) -> None:
        """Note a parameter of a step that is no placeholder, for it has a default."""
        self._values.defaulted.add(self.scope + parameter)

    def get_operations(self) -> list[Operation]:
        return [*self._values.operations, *super().get_operations()]


def graph(
    fn: Callable[..., Any],
    outputs: Iterable[str] = (),
    name: str = "train_op",
    *,
    nvtx: bool = False,
    **parts: Any,
) -> Graph:
    """A ``Graph(**parts)`` with one step, made by ``step(fn, outputs, name, nvtx=nvtx)``."""
    made = Graph(**parts)
    with made.as_default():
        step(fn, outputs, name, nvtx=nvtx)
    return made


def step(
    fn: Callable[..., Any],
    outputs: Iterable[str] = (),
    name: str = "train_op",
    *,
    args: Iterable[Any] | None = None,
    counts: bool = True,
    nvtx: bool = False,
) -> Operation:
    """Add a step to the default graph, a ``Graph`` of ``rh.torch``; its operation is ``name``.

    ``fn``: your own function, which changes the parts in place and returns a dict of values by
    name, or None. Each of ``outputs`` is a tensor of that name, ``"loss"`` and ``"loss:0"``; under
    ``name`` (``"discriminator/loss"``) where an earlier step has one of that name; a first run in
    which ``fn`` does not return all of them raises ValueError. ``args``: what it is called with, as
    for ``rh.call``; if None, each parameter without a default is a placeholder of that name, which
    steps share. ``counts``: whether a run of it is a global step; False for micro-steps whose
    gradients accumulate, so that the global step counts updates, and checkpoints hold what modules
    have accumulated. ``nvtx``: mark each run of it as an NVTX range, for Nsight.

    A run that raises cannot be undone: the parts stay as they are then, until a checkpoint is
    restored.

    Raises TypeError outside a ``Graph`` of ``rh.torch``, and for a ``fn`` whose parameters cannot
    be placeholders; ValueError for a name that does not fit, is there already, or means a part;
    RuntimeError if the graph is finalized, or for ``nvtx`` without CUDA.
    """
    within = get_default_graph()
    if not isinstance(within, Graph):
        raise TypeError(
            f"step needs a graph of rh.torch.Graph(model=model, ...) as the default graph, "
            f"got {within!r}"
        )
    if isinstance(outputs, str):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    wanted = [names.check(output) for output in outputs]
    _check_names(within, name, wanted)
    given = _placeholders(within, fn, name) if args is None else tuple(args)
    controls = (
        [get_or_create_global_step().assign_add(1, name=f"{name}/count").op] if counts else []
    )
    op = within.add(
        STEP,
        step_function(fn, within.parts, within.scope + name, wanted, counts=counts, nvtx=nvtx),
        given,
        name=name,
        control_inputs=controls,
    )
    within.parts.steps[op.name] = fn
    if not counts:
        within.parts.keep_pending_gradients()
    for output in wanted:
        taken = within.has_operation(within.scope + output)
        within.add(
            OUTPUT,
            output_of(op.name, output),
            (op.outputs[0],),
            name=f"{name}/{output}" if taken else output,
        )
    return op


def _check_names(within: Graph, name: str, outputs: list[str]) -> None:
    if within.has_operation(within.scope + names.check(name)):
        raise ValueError(f"name must be new, got {name!r}: the graph has one of that name")
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"outputs must be different names, got {outputs}")
    within.check_new("name", name)
    for output in outputs:
        within.check_new("outputs", output)


def _placeholders(within: Graph, fn: Callable[..., Any], step_name: str) -> tuple[Tensor, ...]:
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    found = []
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.default is not parameter.empty:
            within.note_defaulted(name)
            continue
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(
                f"fn must take its inputs as plain parameters, got {parameter} in {fn!r}: "
                "give args, the tensors to call it with"
            )
        within.check_new("a parameter of fn", name)
        if not within.has_operation(within.scope + name):
            found.append(placeholder(name))
        elif within.get_operation_by_name(within.scope + name).type == "Placeholder":
            found.append(within[within.scope + name])
        else:
            found.append(placeholder(f"{step_name}/{name}"))
    return tuple(found)
