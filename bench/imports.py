"""What an import adds to the start of a program that has already imported NumPy.

Each import has its own process, and runs once before all turns, so that its files are in memory and
its byte code is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from bench.measure import Contender, Effort, alternate
from bench.table import Table, tabulated

_TIMED = """
import numpy, time
begin = time.perf_counter()
{statement}
print((time.perf_counter() - begin) * 1e3)
"""

_ALONE = _TIMED.replace("import numpy, time", "import time")

PEERS = {
    "tensorboardX": "import tensorboardX",
    "TensorBoard's writer": "import tensorboard.summary.writer.event_file_writer",
    "torch's SummaryWriter": "import torch.utils.tensorboard",
    "CLU's periodic actions": "import clu.periodic_actions",
    "ignite's engine": "import ignite.engine",
}


def importing(byte_code: str, statement: str, program: str = _TIMED) -> Callable[[object], float]:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program.format(statement=statement)]

    def loop(_: object) -> float:
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return float(run.stdout.splitlines()[-1])

    return loop


def contenders(byte_code: str) -> list[Contender]:
    return [
        Contender("NumPy itself", importing(byte_code, "import numpy", _ALONE), role="limit"),
        Contender("runhooks", importing(byte_code, "import runhooks")),
        *(Contender(name, importing(byte_code, it), role="peer") for name, it in PEERS.items()),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as byte_code:
        imports = contenders(byte_code)
        alternate(imports, 1)
        yield tabulated("an import", "ms", imports, alternate(imports, effort.turns(9)))
