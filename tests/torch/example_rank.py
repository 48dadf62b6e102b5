"""One rank of an example, given RANK SIZE FOLDER PROGRAM ARGUMENT..., as torchrun starts them."""

import os
import runpy
import sys
import time
from pathlib import Path

from torch.distributed import TCPStore

rank, size, folder, program = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
file = folder / "example-port"
if rank == 0:  # in the place of torchrun's agent: the port is one that the system chooses
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    file.with_suffix(".part").write_text(str(store.port))
    file.with_suffix(".part").rename(file)
while not file.exists():
    time.sleep(0.01)
os.environ |= {
    "RANK": str(rank),
    "WORLD_SIZE": size,
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": file.read_text(),
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
sys.argv = sys.argv[4:]
sys.path.insert(0, str(Path(program).parent))
runpy.run_path(program, run_name="__main__")
if rank == 0:  # the host of the store leaves last
    while not (folder / "left-1").exists():
        time.sleep(0.01)
(folder / f"left-{rank}").touch()
