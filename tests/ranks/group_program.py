"""One rank of torch.distributed or jax.distributed that uses its group; prints what it found."""

import json
import sys
import threading
import time
from pathlib import Path

import runhooks  # noqa: F401 - it imports no framework
from runhooks.errors import DeadlineExceededError, PeerFailedError
from runhooks.ranks import current_group

runtime, rank, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if runtime == "torch":
    import torch.distributed as dist
else:
    import jax

    jax.config.update("jax_platforms", "cpu")


def torch_store(rank, size, file):
    """The store that rank 0 hosts, at a port which the system chooses and ``file`` names."""
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        part = file.with_suffix(".part")
        part.write_text(str(store.port))
        part.rename(file)
        return store
    while not file.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(file.read_text()), size, False)


found = {"before": type(current_group()).__name__}
if runtime == "torch":
    store = torch_store(rank, 2, Path(port))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
else:
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)

group = current_group()
found["place"] = [group.rank, group.size, group.is_chief]
found["same"] = current_group() is group
found["once"] = group.set_once("once", str(rank))
found["gathered"] = [group.gather("g", str(rank)) for _ in range(3)]
found["absent"] = group.get("absent")

heard = []
ear = threading.Thread(target=lambda: heard.append(group.listen("call")))
ear.start()
group.barrier("listening")
if rank == 0:
    group.set("call", "from rank 0")
ear.join()
(found["heard"],) = heard

found["missing"] = []
if rank == 0:
    try:
        group.barrier("lonely", timeout_secs=0.2)
    except DeadlineExceededError as error:
        found["missing"] = [str(error).split(": ")[1].split(";")[0]]
    group.set("seen", "")
else:
    group.wait("seen")
    group.fail("it broke")
if rank == 0:
    try:
        group.wait("never")
    except PeerFailedError as error:
        found["failure"] = [error.rank, error.cause]
    group.set("over", "")
group.delete("absent")
print(json.dumps(found))
if runtime == "torch":
    if rank == 1:
        group.listen("over")
    else:
        group.start_training()
        group.set("x", "")
    dist.destroy_process_group()
else:
    jax.distributed.shutdown()
