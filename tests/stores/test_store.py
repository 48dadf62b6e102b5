"""What a store does, in memory and on an S3 server."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks import stores
from runhooks.stores import open_store


@pytest.fixture
def store(url):
    return open_store(url)


def test_an_object_is_what_was_put_last(store):
    store.put("a/b", b"first")
    store.put("a/b", b"second")
    assert store.read("a/b") == b"second"
    found = store.stat("a/b")
    assert (found.key, found.size) == ("a/b", 6)
    assert abs(found.modified - time.time()) < 3600


def test_keys_are_any_text(store):
    texts = sorted(["a b", "épée", "100%", "a#b?c=d", "%41", "x*[y]", "+~=&"])
    keys = [f"{text}/{text}" for text in texts]
    for key in keys:
        store.put(key, key.encode())
    assert [store.read(key) for key in keys] == [key.encode() for key in keys]
    assert [it.key for it in store.objects()] == keys
    assert store.folders() == texts
    for text, key in zip(texts, keys, strict=True):
        assert [it.key for it in store.objects(text)] == [key]
    store.delete(keys)
    assert store.objects() == []


def test_large_content_of_many_pieces_is_one_object(store):
    content = np.arange(5 << 20, dtype=np.int64).view(np.uint8)
    pieces = np.split(content, [1, 9 << 20, 9 << 20, (40 << 20) - 5])
    store.put("large", pieces)
    assert store.stat("large").size == sum(map(len, pieces))
    into = np.empty(store.stat("large").size, np.uint8)
    store.read_into("large", memoryview(into))
    np.testing.assert_array_equal(into, content)
    ranges = [(0, 3), (20 << 20, (20 << 20) + 7), (5, 5)]
    assert store.read_ranges("large", ranges) == [bytes(into[a:b]) for a, b in ranges]
    assert store.read("large", 2, 4) == bytes(into[2:4])


def test_empty_objects(store):
    store.put("none", b"")
    store.put("nothing", [])
    assert [it.size for it in store.objects()] == [0, 0]
    assert store.read("none") == b""


def test_create_is_for_one_alone(store):
    store.create("commit", b"of the first")
    with pytest.raises(FileExistsError) as caught:
        store.create("commit", b"of the other")
    assert caught.value.filename == store.url_of("commit")
    assert store.read("commit") == b"of the first"


def test_of_many_that_create_one_succeeds(store):
    def create(number):
        try:
            store.create("commit", b"%d" % number)
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as threads:
        succeeded = [it for it in threads.map(create, range(8)) if it is not None]
    assert [b"%d" % it for it in succeeded] == [store.read("commit")]


def test_lists(store):
    for key in ("a/1", "a/b/2", "ab/3", "4"):
        store.put(key, b"x")
    assert [it.key for it in store.objects()] == ["4", "a/1", "a/b/2", "ab/3"]
    assert [it.key for it in store.objects("a")] == ["a/1", "a/b/2"]
    assert store.objects("nowhere") == store.folders("nowhere") == []
    assert store.folders() == ["a", "ab"]
    assert store.folders("a") == ["b"]
    store.put("a/5", b"new")
    assert [it.key for it in store.objects("a")] == ["a/1", "a/5", "a/b/2"]


def test_marks_of_folders_are_no_objects(bucket, s3_server):
    for folder in ("run/", "run/a/", "run/b/"):  # as consoles and mounted buckets leave them
        place = f"{s3_server.endpoint}/{bucket.removeprefix('s3://')}/{folder}"
        urllib.request.urlopen(urllib.request.Request(place, b"", method="PUT")).close()
    store = open_store(f"{bucket}/run")
    store.put("a/b", b"content")
    assert [it.key for it in store.objects("a")] == ["a/b"]
    assert store.objects("b") == []
    assert "" not in [it.key for it in store.objects()]
    assert store.folders() == ["a", "b"]


def test_delete_takes_what_is_there(store):
    for key in ("1", "2", "3"):
        store.put(key, b"x")
    store.delete(["1", "missing", "3"])
    store.delete([])
    assert [it.key for it in store.objects()] == ["2"]


def test_what_is_not_there(store):
    for ask in (store.read, store.stat, lambda key: store.read(key, 0, 1)):
        with pytest.raises(FileNotFoundError) as caught:
            ask("missing")
        assert caught.value.filename == store.url_of("missing")


def test_bytes_behind_the_end(store):
    store.put("short", b"12345")
    with pytest.raises(OSError, match="s3://|memory://"):
        store.read("short", 3, 9)


# Another test may have started threads of JAX, which the child does not touch.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_has_the_store_too(bucket):
    store = open_store(f"{bucket}/run")
    store.put("k", b"of the parent")
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write_end, store.read("k"))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        assert file.read() == b"of the parent"
    os.waitpid(child, 0)
    assert store.read("k") == b"of the parent"


@pytest.mark.parametrize("place", ["s3://bucket/run", "memory://run", "file:///runs/a"])
def test_a_url_that_went_through_a_path_is_no_folder_of_that_name(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost = Path(place)
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        for use in (
            lambda: rh.MonitoredTrainingSession(checkpoint_dir=str(lost)),
            lambda: rh.summary.FileWriter(lost),
            lambda: rh.latest_checkpoint(lost),
            lambda: rh.events.read(lost),
        ):
            with pytest.raises(ValueError, match="takes a slash away"):
                use()
    assert list(tmp_path.iterdir()) == []


def test_a_url_has_a_scheme():
    assert stores.is_url("s3://bucket/run")
    assert not any(map(stores.is_url, ["runs/a", "/runs/a", "file:///runs/a", "C:\\runs", "a:b"]))
    assert stores.without_file_scheme("file:///runs/a") == "/runs/a"
    assert stores.without_file_scheme("s3://b/k") == "s3://b/k"
    with pytest.raises(ValueError, match="url must begin with a scheme"):
        open_store("runs/a")
    for url in ("s3://", "s3:///run", "GS://"):
        with pytest.raises(ValueError, match=f"'{url}' names no bucket"):
            open_store(url)
    with pytest.raises(ValueError, match=r"must not have '\.\.' in it"):
        open_store("s3://bucket/run/../other")
    with pytest.raises(ValueError, match="absolute path behind file://"):
        rh.MonitoredTrainingSession(checkpoint_dir="file://runs/a")
    with pytest.raises(ValueError, match="nowhere:// is not known"):
        open_store("nowhere://a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://user:pw@host/run", "ftp://***@host/run"),
        ("ftp://user:p/w?x@y@host/run", "ftp://***@host/run"),
        ("https://host/run?sig=ab/c@d", "https://host/run?***"),
        ("S3://key:sec/ret@bucket/run", "S3://***@bucket/run"),
        ("az://box/run?se=2030&sig=ab/cd", "az://box/run?***"),
        ("simplecache::ftp://user:pw@host/run", "ftp://***@host/run"),
    ],
)
def test_a_url_with_a_secret_is_refused_and_the_secret_is_not_shown(url, shown):
    with pytest.raises(ValueError, match=re.escape(repr(shown))) as caught:
        rh.load(url)
    assert not any(it in str(caught.value) for it in ("pw", "p/w", "sig", "ret"))


def test_what_only_looks_like_a_secret_is_allowed():
    for url in ("s3://bucket/a:b@c", "az://container@account/run", "sftp://me@host:22/run"):
        assert stores.is_url(url)


@pytest.mark.parametrize(
    ("missing", "url", "needed"),
    [
        ("fsspec", "memory://a", "fsspec"),
        ("s3fs", "s3://bucket/a", "fsspec s3fs"),
        ("gcsfs", "abfs://bucket/a", "fsspec adlfs"),
    ],
)
def test_what_must_be_installed_is_said(missing, url, needed):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from runhooks.stores import open_store
try:
    open_store({url!r})
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == f"{url} needs more than is installed: pip install {needed}\n", found


def test_a_library_that_replaces_what_must_be_created_once_is_refused(monkeypatch):
    monkeypatch.setattr(
        "fsspec.implementations.memory.MemoryFileSystem.__module__", "obstore.fsspec"
    )
    with pytest.raises(ValueError, match="registered as obstore.fsspec"):
        open_store("memory://run")


def test_a_bucket_that_is_not_there_is_no_empty_place(bucket):
    for place in ("s3://no-such-bucket/run", "s3://no-such-bucket"):
        for use in (rh.latest_checkpoint, rh.load, rh.events.read):
            with pytest.raises(FileNotFoundError, match="bucket does not exist") as caught:
                use(place)
            assert caught.value.filename.startswith("s3://no-such-bucket")
    assert rh.latest_checkpoint(f"{bucket}/run") is None
    assert rh.latest_checkpoint(bucket) is None
    assert open_store(f"{bucket}/run").folders() == []
