"""TensorBoard's own reader of a directory, without TensorFlow: a program that reloads on demand.

``tensorboard_reader.py URL LIBRARY``: for each line of its input it reads what is new, and prints
the scalars of all runs as JSON. LIBRARY: ``boto3``, or ``fsspec``.
"""

import json
import sys
import types

# What TensorBoard is told this way: to use its own file systems, though TensorFlow is installed.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")

from tensorboard.backend.event_processing import plugin_event_multiplexer  # noqa: E402
from tensorboard.compat.tensorflow_stub.io import gfile  # noqa: E402


def main(url, library):
    if library == "fsspec":
        gfile._REGISTERED_FILESYSTEMS.pop("s3")
    runs = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    for _ in sys.stdin:
        runs.AddRunsFromDirectory(url)
        runs.Reload()
        print(json.dumps({run: scalars(runs, run) for run in runs.Runs()}), flush=True)


def scalars(runs, run):
    tags = runs.Runs()[run]["tensors"]
    return {
        tag: [[it.step, float(it.tensor_proto.float_val[0])] for it in runs.Tensors(run, tag)]
        for tag in tags
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
