"""The script of ``docs/ranks.md`` on two ranks: by hand and under runhooks it does the same."""

import re
import socket
from pathlib import Path

import pytest
import torch

import runhooks as rh

PAGE = Path(__file__).parents[2] / "docs" / "ranks.md"
HEAD = """
import os, sys
rank, port, folder = sys.argv[1:]
os.environ |= {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
os.chdir(folder)
"""
BETWEEN = """
by_hand = model.module.state_dict()
"""
END = """
for name, weights in model.module.state_dict().items():
    assert torch.equal(weights, by_hand[name]), name
torch.save(by_hand, f"by_hand-{rank}.pt")
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_a_ddp_script_does_the_same_by_hand_and_under_runhooks(torch_launcher, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    program = tmp_path / "program.py"
    program.write_text(HEAD + BETWEEN.join(blocks) + END)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    logs = [tmp_path / f"{rank}.log" for rank in (0, 1)]
    both = [torch_launcher.start(logs[it], program, it, port, tmp_path) for it in (0, 1)]
    assert [torch_launcher.wait(it) for it in both] == [0, 0], [it.read_text() for it in logs]
    lines = [it for it in logs[0].read_text().splitlines() if it.startswith("epoch ")]
    assert len(lines) == 6
    assert lines[:3] == lines[3:]
    assert "epoch 1" not in logs[1].read_text()
    weights = torch.load(tmp_path / "by_hand-1.pt")
    resumed = rh.load(tmp_path / "runs" / "ported", "model", like=weights)
    assert all(torch.equal(resumed[name], weights[name]) for name in weights)
