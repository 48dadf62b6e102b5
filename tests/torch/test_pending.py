"""Gradients that micro-steps have accumulated, random generators and loaders across a restart."""

import copy

import pytest
import torch
from torch import nn

import runhooks as rh
from runhooks.checkpoint import read_checkpoint


class Flat:
    """A flat loop: four micro-steps, then an update, each a run."""

    def __init__(self, sparse=False):
        torch.manual_seed(0)
        self.model = nn.Embedding(6, 2, sparse=sparse)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.graph = rh.torch.Graph(model=self.model, optimizer=self.optimizer)
        with self.graph.as_default():
            rh.torch.step(self.update)
            rh.torch.step(self.accumulate, name="accumulate", counts=False)

    def accumulate(self, number):
        (self.model(torch.tensor([number % 6])).square().sum() / 4).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def runs(self, sess, numbers):
        for number in numbers:
            sess.run("accumulate", {"number": number})
            if number % 4 == 3:
                sess.run("train_op")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("stop", [4, 5, 10])
def test_stop_in_the_middle_of_an_accumulation_loses_nothing(stop, sparse, tmp_path):
    undisturbed, stopped, resumed = Flat(sparse), Flat(sparse), Flat(sparse)
    with rh.Session(undisturbed.graph) as sess:
        undisturbed.runs(sess, range(16))
    with rh.Session(stopped.graph) as sess:
        stopped.runs(sess, range(stop))
        path = rh.Saver().save(sess, tmp_path / "model.ckpt")
    with rh.Session(resumed.graph) as sess:
        rh.Saver().restore(sess, path)
        resumed.runs(sess, range(stop, 16))
    assert torch.equal(resumed.model.weight, undisturbed.model.weight)


def test_gradients_are_saved_only_while_some_are_pending(training, tmp_path):
    flat = Flat()
    with rh.Session(flat.graph) as sess:
        flat.runs(sess, range(4))
        rh.Saver().save(sess, tmp_path / "applied")
        flat.runs(sess, range(1))
        rh.Saver().save(sess, tmp_path / "pending")
        before = flat.model.weight.grad.clone()
        rh.Saver().restore(sess, tmp_path / "applied")
        assert flat.model.weight.grad is None
        rh.Saver().restore(sess, tmp_path / "pending")
        assert torch.equal(flat.model.weight.grad, before)
    assert "gradients/model/weight" not in read_checkpoint(tmp_path / "applied").arrays
    assert "gradients/model/weight" in read_checkpoint(tmp_path / "pending").arrays
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        rh.Saver().save(sess, tmp_path / "counting")
    arrays = read_checkpoint(tmp_path / "counting").arrays
    assert not [name for name in arrays if name.startswith("gradients")]


def test_graph_without_micro_steps_takes_such_a_checkpoint(tmp_path):
    flat = Flat()
    with rh.Session(flat.graph) as sess:
        flat.runs(sess, range(1))
        rh.Saver().save(sess, tmp_path / "pending")
    graph = rh.torch.graph(lambda: None, model=flat.model, optimizer=flat.optimizer)
    with rh.Session(graph) as sess:
        rh.Saver().restore(sess, tmp_path / "pending")


PARTS = 4


class OneStep:
    """Each run is a micro-batch and counts; the step updates after every few, in one of the ways
    in which loops are written."""

    def __init__(self, update, set_to_none=True):
        torch.manual_seed(0)
        self.model = nn.Linear(2, 1)
        self.head = nn.Linear(1, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.1)
        self.slow = torch.optim.SGD(self.head.parameters(), 0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        self.update, self.set_to_none = update, set_to_none
        self.x = torch.randn(32, 8, 2)
        objects = {name: getattr(self, name) for name in ("model", "head", "optimizer", "slow")}
        self.graph = rh.torch.graph(self.step, scaler=self.scaler, **objects)

    def clear(self, optimizer=None):
        (optimizer or self.optimizer).zero_grad(set_to_none=self.set_to_none)

    def backward(self, step):
        return self.head(self.model(self.x[step])).square().mean()

    def step(self, step):
        self.update(self, int(step))


def clear_at_the_end(it, step):
    it.backward(step).backward()
    if (step + 1) % PARTS == 0:
        nn.utils.clip_grad_norm_(it.model.parameters(), 0.1)
        it.optimizer.step()
        it.clear()
        it.clear(it.slow)


def clear_at_the_start(it, step):
    if step % PARTS == 0:
        it.clear()
    it.backward(step).backward()
    if (step + 1) % PARTS == 0:
        it.optimizer.step()


def update_at_the_start(it, step):
    if step and step % PARTS == 0:
        nn.utils.clip_grad_norm_(it.model.parameters(), 0.1)
        it.optimizer.step()
        it.clear()
    it.backward(step).backward()


def update_one_of_two_in_each_run(it, step):
    it.backward(step).backward()
    it.optimizer.step()
    it.clear()
    if (step + 1) % PARTS == 0:
        it.slow.step()
        it.clear(it.slow)


def scale(it, step):
    it.scaler.scale(it.backward(step)).backward()
    if (step + 1) % PARTS == 0:
        it.scaler.step(it.optimizer)
        it.scaler.update()
        it.clear()


ACCUMULATE = [
    clear_at_the_end,
    clear_at_the_start,
    update_at_the_start,
    update_one_of_two_in_each_run,
    scale,
]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("update", ACCUMULATE)
def test_stop_between_two_updates_of_a_step_that_counts_loses_nothing(
    update, set_to_none, tmp_path
):
    undisturbed = OneStep(update, set_to_none)
    with rh.Session(undisturbed.graph) as sess:
        for step in range(12):
            rh.Saver(max_to_keep=None).save(sess, tmp_path / "model.ckpt", step)
            sess.run("train_op")
    for step in range(12):
        resumed = OneStep(update, set_to_none)
        with rh.Session(resumed.graph) as sess:
            rh.Saver().restore(sess, f"{tmp_path}/model.ckpt-{step}")
            for _ in range(step, 12):
                sess.run("train_op")
        assert torch.equal(resumed.model.weight, undisturbed.model.weight), step
        assert torch.equal(resumed.head.weight, undisturbed.head.weight), step


def update_always(it, step):
    it.clear()
    it.clear(it.slow)
    it.backward(step).backward()
    it.optimizer.step()
    it.slow.step()


def update_always_and_clear(it, step):
    it.backward(step).backward()
    it.optimizer.step()
    it.slow.step()
    it.clear()
    it.clear(it.slow)


def train_the_second_now_and_then(it, step):
    """As the critic of a GAN, whose generator is trained after some steps of the critic."""
    it.clear()
    it.head(it.model(it.x[step])).mean().backward(inputs=list(it.model.parameters()))
    it.optimizer.step()
    if step % 2 == 0:
        it.clear(it.slow)
        it.backward(step).backward(inputs=list(it.head.parameters()))
        it.slow.step()


@pytest.mark.parametrize(
    "update", [update_always, update_always_and_clear, train_the_second_now_and_then]
)
def test_gradients_that_an_optimizer_has_applied_are_not_saved(update, tmp_path):
    training = OneStep(update)
    with rh.Session(training.graph) as sess:
        for step in range(4):
            sess.run("train_op")
            rh.Saver().save(sess, tmp_path / "model.ckpt", step)
            assert "gradients" not in rh.load(tmp_path)


def test_gradients_of_an_optimizer_that_was_not_given_are_saved_as_well(tmp_path, caplog):
    model = nn.Linear(2, 1)
    hidden = [torch.optim.SGD(model.parameters(), 0.1)]

    def train_step(step):
        model(torch.ones(1, 2)).sum().backward()
        if step == 0:
            hidden[0].step()
            hidden[0].zero_grad()

    with rh.Session(rh.torch.graph(train_step, model=model)) as sess:
        sess.run("train_op")
        assert "'train_op' uses the optimizer 'SGD', which is no object" in caplog.text
        sess.run("train_op")
        rh.Saver().save(sess, tmp_path / "model.ckpt")
    assert caplog.text.count("SGD") == 1
    assert rh.load(tmp_path / "model.ckpt", "gradients/model/weight").tolist() == [[1, 1]]


class Both:
    """Has an optimizer inside, and saves its state."""

    def __init__(self, optimizer):
        self.optimizers = [optimizer]

    def state_dict(self):
        return self.optimizers[0].state_dict()

    def load_state_dict(self, state):
        self.optimizers[0].load_state_dict(state)


def test_optimizers_that_an_object_holds_or_of_other_parameters_are_not_warned_of(caplog):
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = Both(torch.optim.SGD(model.parameters(), 0.1))
    others = Both(torch.optim.SGD(other.parameters(), 0.1))

    def train_step():
        for it in (*optimizers.optimizers, *others.optimizers):
            it.step()

    with rh.Session(rh.torch.graph(train_step, model=model, optimizers=optimizers)) as sess:
        sess.run("train_op")
    assert not caplog.records


class Held:
    """An object of the user's own that holds an optimizer, and saves it."""

    def __init__(self, optimizer):
        self.inner = optimizer

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


def applied_at_the_start(experts, held, step):
    held.inner.step()  # the first one has nothing to apply
    held.inner.zero_grad()
    experts[step % 3](torch.ones(2)).sum().backward()


def four_by_four(experts, held, step):
    experts[0](torch.ones(2)).sum().backward()
    if (step + 1) % 4 == 0:
        held.inner.step()
        held.inner.zero_grad()


def each_cleared_before_its_own_loss(experts, held, step):
    expert = experts[step % 3]
    expert.zero_grad()
    expert(torch.ones(2)).sum().backward()
    if step % 3 == 0:
        held.inner.step()


def zeros_that_momentum_moves(experts, held, step):
    held.inner.zero_grad(set_to_none=False)
    experts[step % 3](torch.ones(2)).sum().backward()
    held.inner.step()


def cleared_behind_its_back(experts, held, step):
    experts[step % 3](torch.ones(2)).sum().backward()
    held.inner.step()
    for it in experts.parameters():
        if it.grad is not None:
            it.grad.data.zero_()


def an_optimizer_made_late(experts, held, step):
    experts[step % 3](torch.ones(2)).sum().backward()
    if step % 4 == 3:
        late = torch.optim.SGD(experts.parameters(), 0.1)
        late.step()
        late.zero_grad()


def by_hand(experts, held, step):
    experts[step % 3](torch.ones(2)).sum().backward()
    if step % 4 == 3:
        with torch.no_grad():
            for it in experts.parameters():
                it -= 0.1 * it.grad
                it.grad = None


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "step_of",
    [
        applied_at_the_start,
        four_by_four,
        each_cleared_before_its_own_loss,
        zeros_that_momentum_moves,
        cleared_behind_its_back,
        an_optimizer_made_late,
        by_hand,
    ],
)
def test_a_stop_at_any_step_of_loops_that_accumulate_in_their_own_ways_loses_nothing(
    step_of, stop, tmp_path
):
    def trained(folder, last):
        torch.manual_seed(0)
        experts = nn.ModuleList(nn.Linear(2, 1) for _ in range(3))
        held = Held(torch.optim.AdamW(experts.parameters(), 0.1))
        graph = rh.torch.graph(
            lambda step: step_of(experts, held, int(step)), experts=experts, held=held
        )
        with graph.as_default():
            rh.train.train("train_op", tmp_path / folder, max_steps=last)
        return torch.cat([it.flatten() for it in experts.parameters()])

    undisturbed = trained("undisturbed", 9)
    trained("stopped", stop)
    assert torch.equal(trained("stopped", 9), undisturbed)


def sparse_cleared_first(it, step):
    it.optimizer.zero_grad(set_to_none=False)
    it.backward(step)
    it.optimizer.step()


def sparse_cleared_last(it, step):
    it.backward(step)
    it.optimizer.step()
    it.optimizer.zero_grad(set_to_none=False)


def sparse_in_pairs(it, step):
    it.backward(step)
    if step % 2:
        it.optimizer.step()
        it.optimizer.zero_grad(set_to_none=False)


class Words:
    """An embedding with sparse gradients, in a loop that keeps them and sets them to zero."""

    def __init__(self, update, optimizer):
        torch.manual_seed(0)
        self.model = nn.Embedding(10, 3, sparse=True)
        self.optimizer = optimizer(self.model.parameters(), lr=0.1)
        self.step = lambda step: update(self, int(step))
        self.graph = rh.torch.graph(self.step, model=self.model, optimizer=self.optimizer)

    def backward(self, step):
        self.model(torch.tensor([step, 3 * step % 10, step])).square().sum().backward()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("update", [sparse_cleared_first, sparse_cleared_last, sparse_in_pairs])
@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.Adagrad])
@pytest.mark.parametrize("stop", [3, 4])
def test_sparse_gradients_set_to_zero_are_sparse_after_a_resume(update, optimizer, stop, tmp_path):
    plain = Words(update, optimizer)
    for number in range(8):
        plain.step(number)
    for last in (stop, 8):
        words = Words(update, optimizer)
        with words.graph.as_default():
            rh.train.train("train_op", tmp_path, max_steps=last)
    assert torch.equal(words.model.weight, plain.model.weight)


def swapped(model, optimizer, kept, step):
    """Keeps copies of the gradients it applies, and once goes on from the first of them."""
    model(torch.full((1, 2), step + 1.0)).sum().backward()
    if step % 2:
        optimizer.step()
        kept.append(copy.deepcopy(model.weight.grad))
        optimizer.zero_grad()
        if step == 3:
            model.weight.grad = kept[0]


def test_copies_of_gradients_that_were_applied_are_pending(tmp_path):
    def fresh():
        torch.manual_seed(0)
        model, kept = nn.Linear(2, 1), []
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return model, optimizer, lambda step: swapped(model, optimizer, kept, int(step))

    plain, _, step = fresh()
    for number in range(6):
        step(number)
    for last in (4, 6):
        model, optimizer, step = fresh()
        with rh.torch.graph(step, model=model, optimizer=optimizer).as_default():
            rh.train.train("train_op", tmp_path, max_steps=last)
    assert torch.equal(model.weight, plain.weight)
