"""The page on object stores shows programs that run."""

import re
from pathlib import Path
from uuid import uuid4

import pytest

from runhooks import stores

GUIDE = Path(__file__).parents[2] / "docs" / "object-stores.md"


@pytest.fixture(autouse=True)
def policy():
    before = stores.default_policy()
    yield
    stores.set_retry_policy(before)


def test_the_page_shows_what_runs():
    names = {}
    for program in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(program.replace("s3://bucket", f"memory://{uuid4()}"), names)
    assert names["weights"].shape == (3,)
    assert names["loss"].steps.tolist() == list(range(1000))
