"""What was read from a checkpoint is the reader's own, whatever becomes of the file afterwards."""

import numpy as np
import pytest

import runhooks as rh

ITEMS = 300_000  # more than a page, and than JAX copies


def training(engine):
    """A session whose variable ``state`` is increased by one in each run of ``train_op``."""
    with rh.Graph(engine=engine).as_default() as graph:
        state = rh.Variable({"a": np.arange(ITEMS, dtype=np.float32)}, name="state")
        step = rh.train.get_or_create_global_step()
        new = rh.call(lambda tree: {"a": tree["a"] + 1}, state)
        rh.group(state.assign(new), step.assign_add(1), name="train_op")
    return rh.Session(graph)


def value_of(session):
    return np.asarray(session.run("state:0")["a"])


def checkpoint(folder, offset=0):
    with training("python") as session:
        for _ in range(offset):
            session.run("train_op")
        return rh.Saver().save(session, folder / "model.ckpt", 0)


PLAIN = np.arange(ITEMS, dtype=np.float32)


def test_arrays_outlive_the_checkpoint_that_replaces_theirs(tmp_path):
    loaded = rh.load(checkpoint(tmp_path), "state/a")
    replaced = rh.load(checkpoint(tmp_path, offset=2), "state/a")
    np.testing.assert_array_equal(loaded, PLAIN)
    np.testing.assert_array_equal(replaced, PLAIN + 2)


@pytest.mark.parametrize("engine", ["python", "jax", "torch"])
def test_a_restored_session_outlives_the_checkpoint_that_it_was_restored_from(tmp_path, engine):
    if engine != "python":
        pytest.importorskip(engine)
    path = checkpoint(tmp_path)
    saver = rh.Saver(max_to_keep=1)
    with training(engine) as session:
        saver.restore(session, path)
        session.run("train_op")
        saver.save(session, tmp_path / "model.ckpt", 1)
        assert [it.name for it in tmp_path.iterdir()] == ["model.ckpt-1"]  # the other is deleted
        saver.restore(session, tmp_path / "model.ckpt-1")
        saver.save(session, tmp_path / "model.ckpt", 2)
        np.testing.assert_array_equal(value_of(session), PLAIN + 1)
        session.run("train_op")
        np.testing.assert_array_equal(value_of(session), PLAIN + 2)
    np.testing.assert_array_equal(rh.load(tmp_path, "state/a"), PLAIN + 1)


def test_a_training_in_place_changes_no_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")

    def built():
        model = torch.nn.Linear(600, 500)
        with torch.no_grad():
            model.weight.fill_(1.0)

        def train_step(model, optimizer):
            optimizer.zero_grad()
            loss = model.weight.sum() + model.bias.sum()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        return model, rh.torch.graph(train_step, model=model, optimizer=optimizer)

    model, graph = built()
    saver = rh.Saver()
    with graph.as_default(), rh.Session() as session:
        path = saver.save(session, tmp_path / "model.ckpt", 0)
        saver.restore(session, path)
        session.run("train_op")
        assert (model.weight == 0.5).all()
        assert (rh.load(path, "model/weight") == 1).all()
        saver.restore(session, path)
        assert (model.weight == 1).all()


def test_arrays_of_a_checkpoint_that_nobody_may_write_can_be_changed(tmp_path):
    path = checkpoint(tmp_path)
    (file,) = (tmp_path / "model.ckpt-0").iterdir()
    file.chmod(0o400)
    before = file.read_bytes()
    loaded = rh.load(path, "state/a")
    loaded *= 2
    np.testing.assert_array_equal(loaded, PLAIN * 2)
    assert file.read_bytes() == before
