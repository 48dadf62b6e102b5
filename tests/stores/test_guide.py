"""The page on object stores shows programs that run."""

import re
from pathlib import Path
from uuid import uuid4

GUIDE = Path(__file__).parents[2] / "docs" / "object-stores.md"


def test_the_page_shows_what_runs():
    names = {}
    for program in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(program.replace("s3://bucket", f"memory://{uuid4()}"), names)
    assert names["loss"].steps.tolist() == list(range(1000))
