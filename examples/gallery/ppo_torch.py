"""Proximal policy optimization in PyTorch: rollouts, and several passes over each, in iterations.

    python examples/gallery/ppo_torch.py --dir runs/ppo_torch
    python examples/gallery/ppo_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import runhooks as rh

# --- The environment, the agent and the step

ENVS = 8
LENGTH = 32  # of a rollout
PASSES, PARTS = 10, 2  # over each rollout, in minibatches of a part of it
GAMMA, LAMBDA = 0.98, 0.9
STEPS = PASSES * PARTS  # of the optimizer in an iteration


class CartPoles:
    """Poles [ENVS], each hinged to a cart that one pushes to the left or right to balance it.

    A pole that falls, a cart that leaves the track, and 500 pushes end an episode; the next begins.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.state = self.random.uniform(-0.05, 0.05, (ENVS, 4))  # x, its speed, angle, its speed
        self.returns = np.zeros(ENVS)  # so far: each push that leaves the pole up is worth 1
        self.finished: list[float] = []  # the returns of the latest episodes

    def observe(self) -> Tensor:
        return torch.tensor(self.state, dtype=torch.float32)

    def push(self, right: Any) -> Any:
        """Push for 0.02 s; return the rewards [ENVS] and which episodes have ended [ENVS]."""
        _, speed, angle, turning = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        # A cart of 1 kg, a pole of 0.1 kg and 1 m, a force of 10 N.
        pushed = (np.where(right, 10.0, -10.0) + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        speedup = pushed - 0.05 * turn * cosine / 1.1
        self.state = self.state + 0.02 * np.stack([speed, speedup, turning, turn], 1)
        self.returns = self.returns + 1
        fallen = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > np.pi / 15)
        ended = fallen | (self.returns >= 500)
        self.finished = [*self.finished, *self.returns[ended].tolist()][-20:]
        begun = self.random.uniform(-0.05, 0.05, (ENVS, 4))
        self.state = np.where(ended[:, None], begun, self.state)
        self.returns = np.where(ended, 0.0, self.returns)
        return np.ones(ENVS), ended

    def mean_return(self) -> float:
        return float(np.mean(self.finished)) if self.finished else 0.0

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "random": self.random.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.random.bit_generator.state = state["random"]
        self.state, self.returns = state["state"], state["returns"]
        self.finished = state["finished"]


class Agent(nn.Module):
    """A policy, and the value [N] that it expects from observations [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observed: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(observed)), self.critic(observed)[:, 0]


def create(args: argparse.Namespace) -> dict[str, Any]:
    """The objects of the training; the rate falls to 0 over all iterations."""
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), args.lr, eps=1e-5)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, args.iterations)
    return {"agent": agent, "optimizer": optimizer, "scheduler": scheduler}


@torch.no_grad()
def rollout(agent: Agent, envs: CartPoles) -> dict[str, Tensor]:
    """Play for LENGTH steps; return what was seen and done, by name, each [LENGTH * ENVS, ...]."""
    steps = []
    for _ in range(LENGTH):
        observed = envs.observe()
        policy, value = agent(observed)
        action = policy.sample()
        reward, ended = (torch.tensor(it, dtype=torch.float32) for it in envs.push(action.numpy()))
        steps.append((observed, action, policy.log_prob(action), value, reward, 1 - ended))
    _, next_value = agent(envs.observe())
    observed, actions, old_scores, values, rewards, lives = map(
        torch.stack, zip(*steps, strict=True)
    )
    advantages, advantage = torch.zeros_like(values), torch.zeros(ENVS)
    for t in reversed(range(LENGTH)):
        surprise = rewards[t] + GAMMA * lives[t] * next_value - values[t]
        advantage = surprise + GAMMA * LAMBDA * lives[t] * advantage
        advantages[t], next_value = advantage, values[t]
    seen = {"observed": observed, "actions": actions, "old_scores": old_scores}
    seen |= {"advantages": advantages, "targets": advantages + values}
    return {name: it.flatten(0, 1) for name, it in seen.items()}


def minibatches(seen: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """PASSES over what was seen, each in a new order."""
    for _ in range(PASSES):
        for chosen in torch.randperm(LENGTH * ENVS).chunk(PARTS):
            yield {name: it[chosen] for name, it in seen.items()}


def train_step(
    agent: Agent,
    optimizer: Any,
    observed: Tensor,
    actions: Tensor,
    old_scores: Tensor,
    advantages: Tensor,
    targets: Tensor,
) -> Any:
    policy, values = agent(observed)
    ratio = (policy.log_prob(actions) - old_scores).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    value_loss = (values - targets).pow(2).mean() / 2
    entropy = policy.entropy().mean()
    optimizer.zero_grad()
    (-gain + 0.5 * value_loss - 0.01 * entropy).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    return {"value_loss": value_loss, "entropy": entropy}


def report(iteration: int, value_loss: float, entropy: float, mean_return: float) -> None:
    means = f"value loss {value_loss:.6f}, entropy {entropy:.6f}"
    print(f"iteration {iteration}: {means}, mean return {mean_return:.1f}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    envs, objects = CartPoles(args.seed), create(args)
    agent, optimizer, scheduler = objects["agent"], objects["optimizer"], objects["scheduler"]
    first = 1
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file, weights_only=False)
        for name, it in {**objects, "envs": envs}.items():
            it.load_state_dict(kept[name])
        torch.set_rng_state(kept["random"])
        first = kept["iteration"] + 1
    for iteration in range(first, args.iterations + 1):
        value_losses, entropies = [], []
        for batch in minibatches(rollout(agent, envs)):
            outputs = train_step(agent, optimizer, **batch)
            value_losses.append(outputs["value_loss"].item())
            entropies.append(outputs["entropy"].item())
        report(iteration, np.mean(value_losses), np.mean(entropies), envs.mean_return())
        scheduler.step()
        kept = {name: it.state_dict() for name, it in {**objects, "envs": envs}.items()}
        kept |= {"random": torch.get_rng_state(), "iteration": iteration}
        torch.save(kept, last_file)


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    envs, objects = CartPoles(args.seed), create(args)
    graph = rh.torch.graph(train_step, ["value_loss", "entropy"], steps_per_epoch=STEPS, **objects)
    with graph.as_default():
        mean_return = rh.call(envs.mean_return)
        rh.summary.scalar("mean_return", mean_return)
        rh.summary.scalar("learning_rate")
        means = [rh.epoch_mean("value_loss"), rh.epoch_mean("entropy")]
        hooks = [
            rh.StopAtStepHook(last_step=args.iterations * STEPS),
            rh.SavedStateHook(envs=envs),
            rh.CallHook(report, ["epoch", *means, mean_return], every_n_epochs=1),
            rh.CallHook(objects["scheduler"].step, every_n_epochs=1),
        ]
        steps: Any = {"save_checkpoint_steps": args.save_steps, "save_summaries_steps": STEPS}
        with rh.MonitoredTrainingSession(checkpoint_dir=args.dir, hooks=hooks, **steps) as session:
            while not session.should_stop():
                with session.iteration():
                    for batch in minibatches(rollout(objects["agent"], envs)):
                        session.run("train_op", batch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn to balance poles on carts.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/ppo_torch"))
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the networks are too small for more
    plain(args) if args.plain else hooked(args)
