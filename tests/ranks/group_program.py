"""One of two ranks of torch.distributed or jax.distributed, which uses its group.

``group_program.py torch FOLDER RANK`` with the port of a store in FOLDER/port, or
``group_program.py jax PORT RANK``.
"""

import sys
import threading
import time
from pathlib import Path

import pytest

from runhooks.errors import DeadlineExceededError, PeerFailedError
from runhooks.ranks import AloneGroup, current_group

runtime, place, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
assert isinstance(current_group(), AloneGroup)
if runtime == "torch":
    import torch.distributed as dist

    while not (file := Path(place, "port")).exists():
        time.sleep(0.01)
    port = int(file.read_text())
    store = dist.PrefixStore("group", dist.TCPStore("127.0.0.1", port, None, False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
else:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(f"127.0.0.1:{place}", 2, rank)

group = current_group()
assert (group.rank, group.size, group.is_chief) == (rank, 2, rank == 0)
assert current_group() is group
first = group.set_once("once", str(rank))
assert group.agree("first", first, "".join) == first + first
for _ in range(3):
    assert group.agree("g", str(rank), "".join) == "01"
assert group.get("absent") is None
group.delete("absent")

heard = []
ear = threading.Thread(target=lambda: heard.append(group.listen("call")))
ear.start()
group.barrier("listening")
if rank == 0:
    group.set("call", "from rank 0")
ear.join()
assert heard == ["from rank 0"]

if rank == 0:
    with pytest.raises(DeadlineExceededError, match="rank 1 has not come"):
        group.barrier("lonely", timeout_secs=0.2)
    group.set("seen", "")
    with pytest.raises(PeerFailedError, match="rank 1 .* it broke"):
        group.barrier("never")
    group.set("over", "")
else:
    group.listen("seen")
    group.fail("it broke")
    group.listen("over")
if runtime == "torch":
    if rank == 0:
        group.start_training()
        group.set("x", "")
    dist.destroy_process_group()
else:
    jax.distributed.shutdown()
