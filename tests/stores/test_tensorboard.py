"""TensorBoard, the real one, shows what is written to a store, while it is being written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks import events
from runhooks.events.writing import event_file

pytestmark = pytest.mark.slow

READER = Path(__file__).with_name("tensorboard_reader.py")


@pytest.fixture(params=["boto3", "fsspec"])
def show(request, bucket, s3_server):
    """What TensorBoard shows of the bucket after one more reload."""
    environment = {
        **os.environ,
        "S3_ENDPOINT": s3_server.endpoint,
        "FSSPEC_S3": json.dumps({"use_listings_cache": False}),
    }
    reader = subprocess.Popen(
        [sys.executable, READER, f"{bucket}/runs", request.param],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def show():
        reader.stdin.write("reload\n")
        reader.stdin.flush()
        return json.loads(reader.stdout.readline())

    with reader:
        yield show
        reader.kill()


def ours(url):
    return {
        name: {tag: np.stack([it.steps, it.values], 1).tolist() for tag, it in run.scalars.items()}
        for name, run in events.read(url).items()
    }


def test_it_shows_each_segment_as_it_grows(bucket, show, monkeypatch):
    monkeypatch.setattr(event_file, "SEGMENT_BYTES", 3000)
    writer = rh.summary.FileWriter(f"{bucket}/runs/a")
    other = rh.summary.FileWriter(f"{bucket}/runs/b")
    expected = []
    for begin in range(0, 100, 10):
        for step in range(begin, begin + 10):
            writer.scalar("loss", step / 4, step)
            expected.append([step, step / 4])
        writer.flush()
        shown = show()
        assert shown["a"]["loss"] == expected
        assert ours(f"{bucket}/runs") == {"a": shown["a"], "b": {}}
    writer.close()
    other.close()
    assert 1 < len(events.read(f"{bucket}/runs/a")["."].files) < 5
