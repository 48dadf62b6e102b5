"""The loaders that people have, torchdata's and grain's, beside what else draws random numbers."""

import numpy as np
import pytest

import runhooks as rh
from tests.graph.test_random_order import OF_THEIR_OWN_EPOCHS, stateful_loader, stateful_noise

# Torchdata calls what torch no longer wants to be called.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.mark.parametrize("make_loader", [stateful_loader, *OF_THEIR_OWN_EPOCHS])
def test_session_without_a_checkpoint_begins_where_the_first_one_began(make_loader, graph):
    batch = rh.call(lambda batch: np.asarray(batch).tolist(), rh.inputs(make_loader()))
    drawn = []
    for _ in range(2):
        with rh.Session(graph) as session:
            drawn.append([session.run(batch) for _ in range(3)])
    assert drawn[0] == drawn[1]


class TorchRandom:
    """The global generator of torch, as a state."""

    def state_dict(self):
        import torch

        return {"state": torch.get_rng_state()}

    def load_state_dict(self, state):
        import torch

        torch.set_rng_state(state["state"])


def train_with_dropout(steps, checkpoint_dir=None, lost_at=None):
    """What dropout by the global generator leaves of the batches of ``steps`` steps."""
    import torch

    lost = [] if lost_at is None else [lost_at]
    seen = []

    def dropout(batch, step):
        if int(step) in lost:
            lost.clear()
            raise rh.errors.AbortedError(None, None, "lost")
        return (batch * torch.bernoulli(torch.full(batch.shape, 0.5)).numpy()).tolist()

    with rh.Graph().as_default():
        step = rh.train.create_global_step()
        count = step.assign_add(1)
        kept = rh.call(dropout, rh.inputs(stateful_noise(), epochs=2), step)
        hooks = [rh.SavedStateHook(torch=TorchRandom()), rh.StopAtStepHook(num_steps=steps)]
        with rh.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks) as sess:
            while not sess.should_stop():
                result, _ = sess.run([kept, count])
                del seen[sess.global_step - 1 :]
                seen.append(result)
    return seen


@pytest.mark.parametrize("saving", [True, False])
def test_global_generator_that_loader_and_dropout_share_is_recovered_exactly(saving, tmp_path):
    checkpoint_dir = tmp_path if saving else None
    assert train_with_dropout(8, checkpoint_dir, lost_at=5) == train_with_dropout(8)
