"""Shards: any split of an array among ranks, written to files, and any block read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import runhooks as rh
from runhooks.arrays.shards import (
    Shard,
    ShardedArray,
    Share,
    block,
    make_up,
    parts_of_replicas,
)
from runhooks.checkpoint import read_checkpoint
from runhooks.checkpoint.drafts import DiskDraft
from runhooks.checkpoint.format import (
    begun_manifest,
    check_checkpoint,
    read_manifest,
    write_manifest,
)
from runhooks.checkpoint.manifest import FileDigest, Manifest, files_of
from runhooks.checkpoint.shards import (
    RankArrays,
    ShardedCheckpoint,
    ShardIndex,
    digests_of,
    together,
    write_rank,
)
from runhooks.checkpoint.states import encode
from runhooks.errors import DataLossError

DTYPES = st.sampled_from(["float32", "int8", "bool", "complex128", "float64", "datetime64[ns]"])


def save(path: Path, ranks: list[dict[str, Any]]) -> ShardedCheckpoint:
    """Save what each rank has as one checkpoint, of which rank 0 is the chief."""
    path.mkdir(parents=True)
    draft = DiskDraft(path, path)
    files, indexes = {}, {}
    of_chief = None
    for rank, arrays in enumerate(ranks):
        content: RankArrays = arrays
        files.update(write_rank(draft, rank, content, encode({"rank": {"is": rank}}), of_chief))
        of_chief = digests_of(ranks[0])
        indexes[rank] = ShardIndex.from_bytes((path / files_of(rank).shards).read_bytes())
    manifest = begun_manifest(7, None, {}, {})._replace(
        files=files, arrays=together(indexes), ranks=len(ranks)
    )
    write_manifest(path, manifest)
    return ShardedCheckpoint(path, manifest)


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    items = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return items.astype(draw(DTYPES))


@st.composite
def splits(draw: st.DrawFn, array: NDArray[Any], ranks: int) -> list[list[Shard]]:
    """Blocks that make up ``array``, dealt out to ``ranks``."""
    edges = []
    for size in array.shape:
        cuts = draw(st.lists(st.integers(0, size), max_size=3))
        edges.append(sorted({0, size, *cuts}))
    starts = [(edge[:-1] or [0]) for edge in edges]
    dealt: list[list[Shard]] = [[] for _ in range(ranks)]
    for index in np.ndindex(*map(len, starts)):
        start = tuple(edge[i] for edge, i in zip(edges, index, strict=True))
        shape = tuple(
            (edge[i + 1] if i + 1 < len(edge) else edge[i]) - edge[i]
            for edge, i in zip(edges, index, strict=True)
        )
        dealt[draw(st.integers(0, ranks - 1))].append(Shard(start, array[block(start, shape)]))
    return dealt


def test_load_reads_what_several_ranks_have_written(tmp_path: Path) -> None:
    whole = np.arange(12.0).reshape(4, 3)
    ranks = [
        {"state/w": ShardedArray((4, 3), whole.dtype, (Shard((0, 0), whole[:2]),))},
        {"state/w": ShardedArray((4, 3), whole.dtype, (Shard((2, 0), whole[2:]),))},
    ]
    ranks[0]["global_step"] = ranks[1]["global_step"] = np.array(7)
    save(tmp_path / "run" / "model.ckpt-7", ranks)
    found = rh.load(tmp_path / "run", "state", like={"w": np.zeros((4, 3), np.float32)})
    np.testing.assert_array_equal(found["w"], whole)
    found["w"] += 1
    rh.load(tmp_path / "run")["state"]["w"] += 1
    rh.export(tmp_path / "run", tmp_path / "a.safetensors")
    exported = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(exported["state/w"], whole)
    assert exported["global_step"] == 7


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_the_split_any_block_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    array, ranks = data.draw(arrays()), data.draw(st.integers(1, 4))
    dealt = data.draw(splits(array, ranks))
    path = tmp_path_factory.mktemp("sharded") / "model-7"
    with pytest.MonkeyPatch.context() as patch:
        piece = data.draw(st.sampled_from([8, 24, 4 << 20]))  # smaller than most blocks, or larger
        patch.setattr("runhooks.checkpoint.shards.PIECE_BYTES", piece)
        sharded = save(
            path,
            [
                {"a": ShardedArray(array.shape, array.dtype, tuple(shards)), "same": array}
                for shards in dealt
            ],
        )
        stored = sharded.arrays()["a"]
        start = tuple(data.draw(st.integers(0, size)) for size in array.shape)
        shape = tuple(
            data.draw(st.integers(0, size - at))
            for size, at in zip(array.shape, start, strict=True)
        )
        np.testing.assert_array_equal(stored.read(start, shape), array[block(start, shape)])
        back = read_checkpoint(path)
    np.testing.assert_array_equal(back.arrays["a"], array)
    np.testing.assert_array_equal(back.arrays["same"], array)
    assert back.arrays["a"].dtype == array.dtype
    assert sharded.differing() == set()


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=5),
    st.integers(1, 5),
)
def test_replicas_are_divided_among_ranks_evenly(shapes: list[list[int]], size: int) -> None:
    replicas = {
        str(i): np.arange(int(np.prod(shape))).reshape(shape) for i, shape in enumerate(shapes)
    }
    forms = {name: (it.shape, it.dtype) for name, it in replicas.items()}
    parts = [parts_of_replicas(replicas, forms, Share(rank, size)) for rank in range(size)]
    written = []
    for name, array in replicas.items():
        rows = [shard for part in parts for shard in part[name].shards]
        if array.size:
            together = np.concatenate([shard.values.reshape(-1) for shard in rows])
            np.testing.assert_array_equal(together, array.reshape(-1))
    for part in parts:
        written.append(sum(s.values.nbytes for it in part.values() for s in it.shards))
    row = max(
        [
            it.nbytes // it.shape[0] if it.ndim and it.size else it.nbytes
            for it in replicas.values()
        ],
        default=0,
    )
    assert max(written) - min(written) <= 2 * row


def two_halves(path: Path, piece: int = 1 << 20) -> NDArray[np.float32]:
    """Save one array of 4 rows, two on each of two ranks."""
    array = np.arange(4 * piece // 8, dtype=np.float32).reshape(4, -1)
    halves = [
        ShardedArray(array.shape, array.dtype, (Shard((at, 0), array[at : at + 2]),))
        for at in (0, 2)
    ]
    save(path, [{"a": it} for it in halves])
    return array


def damage(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    array = two_halves(tmp_path / "model-7")
    damage(tmp_path / "model-7" / "variables-1.safetensors", -1)
    sharded = ShardedCheckpoint(tmp_path / "model-7", read_manifest(tmp_path / "model-7"))
    stored = sharded.arrays()["a"]
    np.testing.assert_array_equal(stored.read((0, 0), (2, 9)), array[:2, :9])
    with pytest.raises(DataLossError, match=r"variables-1\.safetensors: its checksum"):
        stored.read((1, 0), (2, 9))
    with pytest.raises(DataLossError, match=r"variables-1\.safetensors"):
        check_checkpoint(tmp_path / "model-7")


def test_one_piece_of_a_shard_is_checked_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runhooks.checkpoint.shards.PIECE_BYTES", 1024)
    array = two_halves(tmp_path / "model-7", 4096)
    damage(tmp_path / "model-7" / "variables-0.safetensors", -1)
    manifest = read_manifest(tmp_path / "model-7")
    stored = ShardedCheckpoint(tmp_path / "model-7", manifest).arrays()["a"]
    np.testing.assert_array_equal(stored.read((0, 0), (1, 512)), array[:1])
    with pytest.raises(DataLossError):
        stored.read((1, 0), (1, 512))


def test_a_rank_gets_its_own_where_it_differs_from_the_chief(tmp_path: Path) -> None:
    same, chief, mine = np.arange(5), np.zeros(3), np.ones(3)
    ranks = [{"same": same, "mean": chief}, {"same": same, "mean": mine, "more": same}]
    sharded = save(tmp_path / "model-7", ranks)
    for rank, mean in enumerate([chief, mine]):
        np.testing.assert_array_equal(sharded.arrays(rank)["mean"], mean)
        np.testing.assert_array_equal(sharded.arrays(rank)["same"], same)
        assert sharded.states(rank) == {"rank": {"is": rank}}
    np.testing.assert_array_equal(sharded.arrays()["mean"], chief)
    assert sharded.arrays().keys() == {"same", "mean"}
    assert sharded.arrays(1).keys() == {"same", "mean", "more"}
    assert sharded.differing() == {"mean", "more"}
    written = safetensors.numpy.load_file(tmp_path / "model-7" / "variables-1.safetensors")
    assert written.keys() == {"mean@rank", "more@rank"}  # and not what the chief has written


def test_an_array_without_items_is_there_whoever_holds_it(tmp_path: Path) -> None:
    nothing = ShardedArray((0, 3), np.dtype(np.float32), ())
    sharded = save(tmp_path / "model-7", [{"a": nothing}, {"a": nothing}])
    back = np.asarray(sharded.arrays(1)["a"])
    assert (back.shape, back.dtype) == ((0, 3), np.float32)


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    array = two_halves(tmp_path / "model-7")
    for rank, start in enumerate([0, 2]):
        file = tmp_path / "model-7" / f"variables-{rank}.safetensors"
        (key,) = loaded = safetensors.numpy.load_file(file)
        assert key == f"a@{start},0"
        np.testing.assert_array_equal(loaded[key], array[start : start + 2])


HALF = ShardedArray((4,), np.dtype(np.int64), (Shard((0,), np.arange(2)),))
OTHER = HALF._replace(shards=(Shard((2,), np.arange(2)),))
SHIFTED = HALF._replace(shards=(Shard((1,), np.arange(2)),))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([{"a": HALF}, {}], r"the shards of 'a', int64\[4\], have 2 items"),
        ([{"a": HALF}, {"a": HALF._replace(shape=(5,))}], r"'a' is int64\[5\] on rank 1"),
        ([{"a": HALF}, {"a": HALF}], "rank 1 has written 'a@0', and so has another"),
        ([{"a": HALF}, {"a": SHIFTED}], r"the shards of 'a', int64\[4\], overlap"),
        (
            [{"a": HALF._replace(sample=np.arange(2))}, {"a": OTHER._replace(sample=np.ones(2))}],
            "'a' has other values on rank 1",
        ),
    ],
    ids=["missing", "shape", "twice", "overlap", "replica"],
)
def test_shards_that_do_not_make_a_whole_are_refused(
    tmp_path: Path, ranks: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "model-7", ranks)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it["shards"][0].update(start=[9, 0]),
        lambda it: it["shards"][0].update(shape=[2]),
        lambda it: it["shards"][0].update(at=-1),
        lambda it: it["shards"][0].update(at="0"),
        lambda it: it["shards"][0].update(crc32c=[]),
        lambda it: it["shards"][0].update(name=7),
        lambda it: it["shards"][0]["spec"].update(dtype="object"),
        lambda it: it["shards"].pop(),
        lambda it: it.pop("shards"),
        lambda it: it.update(samples=[]),
    ],
    ids=["start", "shape", "at", "text", "sums", "name", "dtype", "fewer", "none", "samples"],
)
def test_an_index_that_makes_no_sense_is_damage(tmp_path: Path, change: Any) -> None:
    """Such as somebody may have written, checksums and all."""
    path = tmp_path / "model-7"
    two_halves(path)
    index = json.loads((path / "shards-1.json").read_text())
    change(index)
    data = json.dumps(index).encode()
    (path / "shards-1.json").write_bytes(data)
    manifest = Manifest.from_bytes((path / "manifest.json").read_bytes())
    digest = FileDigest(len(data), google_crc32c.value(data))
    manifest = manifest._replace(files={**manifest.files, "shards-1.json": digest})
    with pytest.raises(DataLossError, match="model-7 is damaged"):
        ShardedCheckpoint(path, manifest)


@given(st.data())
def test_blocks_make_up_an_array_if_they_cover_each_item_once(data: st.DataObject) -> None:
    array = data.draw(arrays())
    dealt = data.draw(splits(array, 1))[0]
    blocks = [(it.start, it.values.shape) for it in dealt]
    assert make_up(array.shape, blocks)
    for _ in range(data.draw(st.integers(1, 2))):  # move some, within the array
        index = data.draw(st.integers(0, len(blocks) - 1))
        _, shape = blocks[index]
        room = [whole - size for whole, size in zip(array.shape, shape, strict=True)]
        blocks[index] = (tuple(data.draw(st.integers(0, it)) for it in room), shape)
    times = np.zeros(array.shape, int)
    for start, shape in blocks:
        times[block(start, shape)] += 1
    assert make_up(array.shape, blocks) == bool((times == 1).all())


def test_blocks_that_no_cut_divides_make_up_an_array() -> None:
    wheel = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1))]
    assert make_up((3, 3), [*wheel, ((1, 1), (1, 1))])
    assert not make_up((3, 3), [*wheel, ((0, 0), (1, 1))])


def reseal(path: Path, change: Any) -> None:
    """Let ``change`` change the indexes of both ranks and the manifest; make all sums right."""
    indexes = [json.loads((path / f"shards-{rank}.json").read_text()) for rank in (0, 1)]
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["crc32c"]
    blocks = [next((it for it in index["shards"] if it["name"] == "w"), {}) for index in indexes]
    change(manifest["arrays"], *indexes, *blocks)
    for rank, index in enumerate(indexes):
        data = json.dumps(index).encode()
        (path / f"shards-{rank}.json").write_bytes(data)
        digest = {"size": len(data), "crc32c": google_crc32c.value(data)}
        manifest["files"][f"shards-{rank}.json"] = digest
    manifest["crc32c"] = google_crc32c.value(json.dumps(manifest, sort_keys=True).encode())
    (path / "manifest.json").write_text(json.dumps(manifest))


def overlap(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    b["start"] = [2]


def far_away(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    b["at"] = 1 << 62


def another_place(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    b["at"] -= 8


def without_items(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    shape = [0, 1 << 62, 1 << 62]
    arrays["w"]["shape"] = shape
    a.update(spec=arrays["w"], shape=shape, start=[0, 0, 0], crc32c=[])
    second["shards"].remove(b)


def eight_terabytes(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    arrays["w"]["shape"] = shape = [1 << 40]
    a.update(spec=arrays["w"], shape=shape, crc32c=[0] * (1 << 21))
    second["shards"].remove(b)


def one_block_many_times(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    arrays["w"]["shape"] = [4004]
    a["spec"] = b["spec"] = arrays["w"]
    first["shards"] += [{**a, "start": [4 * i]} for i in range(2, 1001)]


def of_its_own(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    second["shards"].append({**b, "start": None, "spec": {"dtype": "float64", "shape": [4]}})


def sums_of_text(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
    b["crc32c"] = ["0"]


@pytest.mark.parametrize(
    "change",
    [
        overlap,
        far_away,
        another_place,
        without_items,
        eight_terabytes,
        one_block_many_times,
        of_its_own,
        sums_of_text,
    ],
)
def test_a_hostile_index_is_damage_and_the_checkpoint_before_is_used(
    tmp_path: Path, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    w = np.arange(8.0)
    for step, values in ((1, w), (7, -w)):
        halves = [
            ShardedArray((8,), w.dtype, (Shard((at,), values[at : at + 4]),)) for at in (0, 4)
        ]
        save(
            tmp_path / f"model.ckpt-{step}",
            [{"w": it, "global_step": np.array(step)} for it in halves],
        )
    np.testing.assert_array_equal(rh.load(tmp_path)["w"], -w)
    reseal(tmp_path / "model.ckpt-7", change)
    for read in (read_checkpoint, check_checkpoint, rh.load):
        with pytest.raises(DataLossError, match="model.ckpt-7 is damaged"):
            read(tmp_path / "model.ckpt-7")
    np.testing.assert_array_equal(rh.load(tmp_path)["w"], w)
    with rh.Graph().as_default():
        variable = rh.Variable(np.zeros(8), name="w")
        rh.train.get_or_create_global_step()
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_secs=None, save_summaries_steps=None
        ) as session:
            assert session.global_step == 1
            np.testing.assert_array_equal(session.run(variable), w)
    assert "model.ckpt-7 is damaged" in caplog.text


def test_a_check_compares_the_index_with_the_file(tmp_path: Path) -> None:
    w = np.arange(8.0)
    halves = [ShardedArray((8,), w.dtype, (Shard((at,), w[at : at + 4]),)) for at in (0, 4)]
    path = tmp_path / "model.ckpt-7"
    save(path, [{"w": halves[0]}, {"w": halves[1]}])

    def integers(arrays: Any, first: Any, second: Any, a: Any, b: Any) -> None:
        arrays["w"]["dtype"] = "int64"
        a["spec"] = b["spec"] = arrays["w"]

    reseal(path, integers)
    with pytest.raises(DataLossError, match=r"variables-0\.safetensors: 'w@0' is not int64\[4\]"):
        check_checkpoint(path)
