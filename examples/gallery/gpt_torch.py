"""A small GPT in PyTorch, on one process or several: micro-batches, a cosine schedule, samples.

    python examples/gallery/gpt_torch.py --dir runs/gpt_torch
    torchrun --nproc-per-node 2 examples/gallery/gpt_torch.py --dir runs/gpt_ddp
    torchrun --nproc-per-node 2 examples/gallery/gpt_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

import runhooks as rh

# --- The model, the data and the step

WIDTH, HEADS, LAYERS = 64, 4, 2
LENGTH = 64  # of the context, in characters
MICRO_BATCHES, SIZE = 4, 8  # of each rank in a step; sequences in each
WARM_UP = 10  # steps

Parts = tuple[Tensor, Tensor]  # of a text, and the characters that follow each of theirs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mixing, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Any:
        heads = self.mixing(self.norms[0](x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(found.transpose(1, 2).flatten(-2))
        return x + self.dense(self.norms[1](x))


class GPT(nn.Module):
    """Scores [N, T, 128] of what follows each character of texts [N, T], in ASCII."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128)

    def forward(self, texts: Tensor) -> Any:
        x = self.characters(texts) + self.places.weight[: texts.shape[1]]
        return self.scores(self.norm(self.blocks(x)))


def load() -> tuple[Tensor, Parts]:
    """The reference manual that comes with Python, in ASCII, and parts of its end for the test."""
    manual = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    text = torch.tensor(list(manual))
    begins = torch.arange(len(text) - 40 * LENGTH, len(text) - LENGTH, LENGTH)
    return text[: begins[0]], parts(text, begins)


def parts(text: Tensor, begins: Tensor) -> Parts:
    places = begins[..., None] + torch.arange(LENGTH)
    return text[places], text[places + 1]


def batches(text: Tensor, rank: int, step: int) -> Iterator[Parts]:
    """What this rank learns from, from ``step`` on: [MICRO_BATCHES, SIZE, LENGTH] in each step."""
    while True:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        shape = MICRO_BATCHES, SIZE
        yield parts(text, torch.randint(len(text) - LENGTH, shape, generator=generator))
        step += 1


def create(args: argparse.Namespace, rank: int) -> dict[str, Any]:
    """The objects of the training, by the names of the steps' parameters."""
    torch.manual_seed(args.seed)
    model: nn.Module = GPT()
    if distributed.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)

    def rate(step: int) -> float:
        if step < WARM_UP:
            return (step + 1) / WARM_UP
        done = (step - WARM_UP) / max(args.steps - WARM_UP, 1)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(done, 1)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    torch.manual_seed(args.seed + rank)  # ranks drop out different values
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def loss_of(model: nn.Module, texts: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model(texts).flatten(0, -2), targets.flatten())


def train_step(model: Any, optimizer: Any, scheduler: Any, texts: Tensor, targets: Tensor) -> Any:
    optimizer.zero_grad()
    total = torch.zeros(())
    for i in range(MICRO_BATCHES):
        # Ranks add up their gradients in the last micro-batch.
        is_alone = i + 1 < MICRO_BATCHES and isinstance(model, DistributedDataParallel)
        with model.no_sync() if is_alone else nullcontext():
            loss = loss_of(model, texts[i], targets[i]) / MICRO_BATCHES
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    return {"loss": total}


def test_step(model: nn.Module, texts: Tensor, targets: Tensor) -> Any:
    """The loss, and a text that the model writes."""
    generator = torch.Generator().manual_seed(0)
    written = torch.tensor([list(b"The ")])
    for _ in range(60):
        chances = model(written[:, -LENGTH:])[:, -1].softmax(-1)
        written = torch.cat([written, chances.multinomial(1, generator=generator)], 1)
    return {"loss": loss_of(model, texts, targets), "sample": bytes(written[0].tolist()).decode()}


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    (text, tested), objects = load(), create(args, rank)
    model, optimizer, scheduler = objects["model"], objects["optimizer"], objects["scheduler"]
    first, best = 0, float("inf")
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        for name, it in objects.items():
            it.load_state_dict(kept[name])
        first, best = kept["step"], kept["best"]
    for step, (texts, targets) in zip(
        range(first + 1, args.steps + 1), batches(text, rank, first), strict=False
    ):
        rate = scheduler.get_last_lr()[0]
        outputs = train_step(model, optimizer, scheduler, texts, targets)
        if rank == 0 and step % args.log_interval == 0:
            print(f"step {step}: loss {outputs['loss'].item():.6f}, learning rate {rate:.6f}")
        if rank == 0 and step % args.test_steps == 0:
            model.eval()
            with torch.no_grad():
                found = test_step(model, *tested)
            model.train()
            print(f"test after step {step}: loss {found['loss'].item():.6f}")
            (args.dir / f"{step}.txt").write_text(found["sample"])
            if found["loss"].item() < best:
                best = found["loss"].item()
                torch.save(model.state_dict(), args.dir / "best.pt")
            kept = {name: it.state_dict() for name, it in objects.items()}
            torch.save({**kept, "step": step, "best": best}, last_file)


def hooked(args: argparse.Namespace) -> None:
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    (text, tested), objects = load(), create(args, rank)
    graph = rh.torch.graph(train_step, ["loss"], data=partial(batches, text, rank), **objects)
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.scalar("learning_rate")
        test = rh.EvaluationHook(
            test_step,
            [tested],
            every_n_steps=args.test_steps,
            summary_op=lambda test: rh.summary.text("sample", test["sample"]),
            output_dir=args.dir / "test",
        )
        rh.train.train(
            "train_op",
            args.dir,
            [test, rh.LoggingTensorHook(["loss", "learning_rate"], every_n_iter=args.log_interval)],
            saver=rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("loss"), mode="min")]),
            max_steps=args.steps,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn to write like a manual.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/gpt_torch"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="steps between log lines")
    parser.add_argument("--test-steps", type=int, default=50, help="test every so many steps")
    parser.add_argument("--save-steps", type=int, default=25, help="save every so many steps")
    args = parser.parse_args()
    torch.set_num_threads(1)  # sums are then the same on any number of cores
    if "RANK" in os.environ:  # started by torchrun
        distributed.init_process_group("gloo")
    plain(args) if args.plain else hooked(args)
    if distributed.is_initialized():
        distributed.destroy_process_group()
