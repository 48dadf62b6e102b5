"""Shards: any split of an array among ranks, written to files, and any block read back."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from bench import ranks_checkpoints as simulation
from bench.ranks_checkpoints import Count
from runhooks.arrays.shards import (
    Shard,
    ShardedArray,
    Share,
    block,
    make_up,
    parts_of_replicas,
)
from runhooks.checkpoint import Snapshot, read_checkpoint
from runhooks.checkpoint.format import StoredCheckpoint, begun_manifest, content_of
from runhooks.checkpoint.group import read_for, write_together
from runhooks.errors import DataLossError
from runhooks.ranks import LocalGroup
from tests.checkpoint.sealing import digest, forge

DTYPES = st.sampled_from(["float32", "int8", "bool", "complex128", "float64", "datetime64[ns]"])
HEAD = "checkpoint.safetensors"


def save(path, ranks):
    """Save what each rank has as one checkpoint, of which rank 0 is the chief."""

    def write(group, arrays):
        content = content_of(Snapshot(arrays, {"rank": {"is": group.rank}}))
        write_together(group, path, content, begun_manifest(7))

    with ThreadPoolExecutor(len(ranks)) as threads:
        groups = LocalGroup.together(len(ranks))
        for it in [threads.submit(write, *pair) for pair in zip(groups, ranks, strict=True)]:
            it.result()
    return StoredCheckpoint(path)


def file_of(path, rank):
    """The file of one of several ranks."""
    (found,) = path.glob(f"attempt-*-{rank}.safetensors")
    return found


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    items = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return items.astype(draw(DTYPES))


@st.composite
def splits(draw, array, ranks):
    """Blocks that make up ``array``, dealt out to ``ranks``."""
    edges = []
    for size in array.shape:
        cuts = draw(st.lists(st.integers(0, size), max_size=3))
        edges.append(sorted({0, size, *cuts}))
    starts = [(edge[:-1] or [0]) for edge in edges]
    dealt = [[] for _ in range(ranks)]
    for index in np.ndindex(*map(len, starts)):
        start = tuple(edge[i] for edge, i in zip(edges, index, strict=True))
        shape = tuple(
            (edge[i + 1] if i + 1 < len(edge) else edge[i]) - edge[i]
            for edge, i in zip(edges, index, strict=True)
        )
        dealt[draw(st.integers(0, ranks - 1))].append(Shard(start, array[block(start, shape)]))
    return dealt


def test_load_reads_what_several_ranks_have_written(tmp_path):
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
@settings(max_examples=30, deadline=None)
def test_whatever_the_split_any_block_can_be_read(tmp_path_factory, data):
    array, ranks = data.draw(arrays()), data.draw(st.integers(2, 4))
    dealt = data.draw(splits(array, ranks))
    path = tmp_path_factory.mktemp("sharded") / "model-7"
    with pytest.MonkeyPatch.context() as patch:
        piece = data.draw(st.sampled_from([8, 24, 4 << 20]))  # smaller than most blocks, or larger
        patch.setattr("runhooks.checkpoint.tensors.PIECE_BYTES", piece)
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
    assert sharded.manifest.differing == ()


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=5),
    st.integers(1, 5),
)
def test_replicas_are_divided_among_ranks_evenly(shapes, size):
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


def two_halves(path, piece=1 << 20):
    """Save one array of 4 rows, two on each of two ranks."""
    array = np.arange(4 * piece // 8, dtype=np.float32).reshape(4, -1)
    halves = [
        ShardedArray(array.shape, array.dtype, (Shard((at, 0), array[at : at + 2]),))
        for at in (0, 2)
    ]
    save(path, [{"a": it} for it in halves])
    return array


def damage(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_no_more_is_read_than_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("runhooks.checkpoint.tensors.PIECE_BYTES", 1024)
    path = tmp_path / "model-7"
    array = two_halves(path, 4096)
    damage(file_of(path, 1), -41)  # before the row of its block
    stored = StoredCheckpoint(path).arrays()["a"]
    np.testing.assert_array_equal(stored.read((0, 0), (3, 512)), array[:3])
    with pytest.raises(DataLossError, match=r"-1\.safetensors: its checksum"):
        stored.read((1, 0), (3, 9))
    with pytest.raises(DataLossError, match=r"-1\.safetensors"):
        StoredCheckpoint(path).check()


def four_parts(path):
    """Save two arrays of 8 rows, two on each of four ranks, and one that the chief has alone."""
    whole = {name: np.arange(32.0).reshape(8, 4) + at for at, name in enumerate("ab")}
    save(
        path,
        [
            {
                name: ShardedArray((8, 4), it.dtype, (Shard((2 * rank, 0), it[2 * rank :][:2]),))
                for name, it in whole.items()
            }
            | {"step": np.array(7)}
            for rank in range(4)
        ],
    )
    return whole


@pytest.mark.parametrize(("rank", "size", "needed"), [(2, 4, {0, 2}), (1, 2, {0, 2, 3})])
def test_a_rank_reads_its_part_without_the_files_and_the_rows_of_others(
    tmp_path, rank, size, needed
):
    path = tmp_path / "model-7"
    whole = four_parts(path)
    for other in {0, 1, 2, 3} - needed:
        file_of(path, other).unlink()
    damage(path / HEAD, -1)  # the last row of the table
    arrays = read_for(LocalGroup(rank, size), path).arrays
    rows = 8 // size
    for name, values in whole.items():
        part = arrays[name].read((rank * rows, 0), (rows, 4))
        np.testing.assert_array_equal(part, values[rank * rows :][:rows])
    assert arrays["step"].read((), ()) == 7
    with pytest.raises(DataLossError, match=HEAD):
        np.asarray(arrays["a"])


@pytest.mark.parametrize("size", [2, 8])
def test_the_chief_and_a_rank_make_as_many_requests_whatever_there_is_to_save(size):
    url = f"memory://{uuid.uuid4().hex}"

    def requests(ranks, arrays):
        place = f"{url}/{ranks}-{arrays}/model-1"
        with Count(place) as count:
            commit = simulation.save(place, ranks, arrays, count).requests
            restore = simulation.restore(place, ranks, ranks, count).requests
            return commit, restore

    (few, restored), more = requests(size, 3), requests(size, 40)
    assert more == (few, restored)
    assert requests(2 * size, 3) == (few + size, restored)


def test_a_rank_gets_its_own_where_it_differs_from_the_chief(tmp_path):
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
    assert sharded.manifest.differing == ("mean", "more")
    written = safetensors.numpy.load_file(file_of(tmp_path / "model-7", 1))
    assert written.keys() == {"mean@rank", "more@rank"}  # and not what the chief has written
    np.testing.assert_array_equal(written["mean@rank"], mine)


def test_an_array_without_items_is_there_whoever_holds_it(tmp_path):
    nothing = ShardedArray((0, 3), np.dtype(np.float32), ())
    sharded = save(tmp_path / "model-7", [{"a": nothing}, {"a": nothing}])
    back = np.asarray(sharded.arrays(1)["a"])
    assert (back.shape, back.dtype) == ((0, 3), np.float32)


HALF = ShardedArray((4,), np.dtype(np.int64), (Shard((0,), np.arange(2)),))
OTHER = HALF._replace(shards=(Shard((2,), np.arange(2)),))
SHIFTED = HALF._replace(shards=(Shard((1,), np.arange(2)),))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([{"a": HALF}, {}], r"the shards of 'a', int64\[4\], have 2 items"),
        ([{"a": HALF}, {"a": HALF._replace(shape=(5,))}], r"'a' is int64\[5\] on rank 1"),
        ([{"a": HALF}, {"a": HALF}], r"the shards of 'a', int64\[4\], overlap"),
        ([{"a": HALF}, {"a": SHIFTED}], r"the shards of 'a', int64\[4\], overlap"),
        (
            [{"a": HALF._replace(sample=np.arange(2))}, {"a": OTHER._replace(sample=np.ones(2))}],
            "'a' has other values on rank 1",
        ),
    ],
    ids=["missing", "shape", "twice", "overlap", "replica"],
)
def test_shards_that_do_not_make_a_whole_are_refused(tmp_path, ranks, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "model-7", ranks)
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_blocks_make_up_an_array_if_they_cover_each_item_once(data):
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


def test_blocks_that_no_cut_divides_make_up_an_array():
    wheel = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1))]
    assert make_up((3, 3), [*wheel, ((1, 1), (1, 1))])
    assert not make_up((3, 3), [*wheel, ((0, 0), (1, 1))])


def table(change):
    """Alters the table of blocks: rows of the rank, the start and the shape."""

    def altered(it):
        rows = np.frombuffer(it["data"], np.int64).copy().reshape(3, 3)
        change(rows)
        it["data"] = rows.tobytes()

    return altered


def set_row(row, *values):
    return table(lambda rows: rows.__setitem__(row, values))


def of_shape(*shape, blocks=2):
    return lambda it: it["about"]["arrays"].update(w=["float64", shape, blocks])


def in_file(change):
    """Alters the second file, and what the checkpoint says of it."""

    def altered(it):
        (name,) = [it for it in it["about"]["files"] if it.endswith("-1.safetensors")]
        path = Path(it["path"]) / name
        forge(path, change)
        it["about"]["files"][name] = digest(path)

    return altered


HOSTILE = {
    "overlap": set_row(1, 1, 2, 4),
    "gap": set_row(1, 1, 5, 3),
    "negative": set_row(1, 1, -4, 4),
    "a rank that is not there": set_row(1, 2, 4, 4),
    "without items": of_shape(0, 1 << 62, 1 << 62),
    "eight terabytes": of_shape(1 << 40),
    "more blocks": of_shape(8, blocks=1 << 60),
    "no dtype": lambda it: it["about"]["arrays"].update(w=["object", [8], 2]),
    "no table": lambda it: it["arrays"].update(other=it["arrays"].pop("blocks")),
    "a table of other items": lambda it: it["arrays"]["blocks"].update(dtype="F64"),
    "no files": lambda it: it["about"].update(files={}),
    "no chief": lambda it: it["about"].update(chief=2),
    "the size of a file": lambda it: next(iter(it["about"]["files"].values())).__setitem__(0, 9),
    "the sum of a file": lambda it: next(iter(it["about"]["files"].values())).__setitem__(1, 9),
    "arrays of a file": in_file(lambda it: it["arrays"].update(x=it["arrays"].pop("w@4"))),
    "states of a file": in_file(lambda it: it.update(states="{")),
}

#: The file that the error names, where it is not that of a rank.
IN_TABLE = ["overlap", "gap", "negative", "a rank that is not there", "eight terabytes"]
FILES = dict.fromkeys([*IN_TABLE, "more blocks", "no dtype", "no table"], HEAD)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_one_is_damage_and_the_checkpoint_before_is_used(tmp_path, name, caplog):
    w = np.arange(8.0)
    for step, values in ((1, w), (7, -w)):
        halves = [
            ShardedArray((8,), w.dtype, (Shard((at,), values[at : at + 4]),)) for at in (0, 4)
        ]
        save(
            tmp_path / f"model.ckpt-{step}",
            [{"w": it, "global_step": np.array([step])} for it in halves],
        )
    path = tmp_path / "model.ckpt-7"
    np.testing.assert_array_equal(rh.load(tmp_path)["w"], -w)
    forge(path, lambda it: (it.update(path=path), HOSTILE[name](it), it.pop("path")))
    with pytest.raises(DataLossError, match="model.ckpt-7 is damaged"):
        StoredCheckpoint(path).check()
    if name == "states of a file":  # which that rank alone reads
        return

    def of_a_rank(path):
        arrays = read_for(LocalGroup(0, 2), path).arrays
        return {name: np.asarray(it) for name, it in arrays.items()}

    for read in (read_checkpoint, rh.load, of_a_rank):
        with pytest.raises(DataLossError, match=rf"model.ckpt-7 is damaged: {FILES.get(name, '')}"):
            read(path)
    np.testing.assert_array_equal(rh.load(tmp_path)["w"], w)
    assert "model.ckpt-7 is damaged" in caplog.text
