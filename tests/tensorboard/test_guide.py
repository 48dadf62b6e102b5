"""The guide shows programs that run."""

import re
from pathlib import Path

from runhooks import events

GUIDE = Path(__file__).parents[2] / "docs" / "summary-writer.md"


def test_guide_shows_what_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(programs) == 4
    for program in programs:
        exec(program, names)
    assert len(names["losses"]) == 120  # 80 of the first writer
    assert names["best"].index.tolist() == ["a", "clu"]
    runs = events.read("runs")
    assert {"a", "a/rate_up", "a/rate_down", "a/hparams", "clu"} == set(runs)
    assert runs["a"].graph is not None
