"""The interface: every method and argument of torch's and tensorboardX's ``SummaryWriter``."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import tensorboardX
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks.tensorboard import SummaryWriter

#: The guide says what to use instead.
LEFT_OUT = {
    *("add_onnx_graph", "add_openvino_graph", "add_image_with_boxes", "add_pr_curve_raw"),
    *("use_metadata", "export_scalars_to_json"),
}

METHODS = [
    (theirs, name)
    for theirs in (TorchWriter, tensorboardX.SummaryWriter)
    for name in ("__init__", *(n for n in vars(theirs) if not n.startswith("_")))
    if name not in LEFT_OUT
]


def parameters(owner, name):
    found = inspect.signature(getattr(owner, name)).parameters.values()
    return [p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@pytest.mark.parametrize(
    ("theirs", "name"), METHODS, ids=[f"{theirs.__module__[:5]}-{name}" for theirs, name in METHODS]
)
def test_all_arguments_are_taken(theirs, name):
    ours = {parameter.name: parameter for parameter in parameters(SummaryWriter, name)}
    expected = parameters(theirs, name)
    assert {p.name for p in expected} - {"comet_config"} <= ours.keys()
    required = {p.name for p in ours.values() if p.default is p.empty}
    assert required <= {p.name for p in expected}


@pytest.mark.parametrize("name", ["__init__", *(n for t, n in METHODS if t is TorchWriter)])
def test_arguments_have_the_order_and_defaults_of_torch(name):
    theirs = [(p.name, p.default) for p in parameters(TorchWriter, name)]
    ours = [(p.name, p.default) for p in parameters(SummaryWriter, name)]
    assert ours[: len(theirs)] == theirs


def test_errors_of_python_name_the_class_that_was_used(tmp_path):
    with pytest.raises(TypeError, match=r"^SummaryWriter.__init__\(\) got multiple values"):
        SummaryWriter(tmp_path, log_dir=tmp_path)
    with SummaryWriter(tmp_path) as writer:
        for name in ("add_scalar", "add_image", "add_histogram", "add_graph"):
            with pytest.raises(TypeError, match=rf"^SummaryWriter.{name}\(\) got an unexpected"):
                getattr(writer, name)("x", 1, unknown=1)


def test_no_framework_is_needed(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from runhooks.tensorboard import SummaryWriter\n"
        f"with SummaryWriter({str(tmp_path)!r}) as w:\n"
        "    w.add_scalar('a', 1, 1); w.add_image('b', np.ones((3, 2, 2))); w.add_text('c', 'd')\n"
        "    w.add_histogram('e', np.ones(3)); w.add_hparams({'f': 1}, {'g': 2})\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    frameworks = {"torch", "tensorflow", "jax", "tensorboard", "google.protobuf"}
    used = {"PIL", "matplotlib", "pandas"}
    assert (frameworks | used).isdisjoint(loaded.stdout.split())
