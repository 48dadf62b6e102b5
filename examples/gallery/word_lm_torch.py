"""A language model in PyTorch: a hidden state carried from batch to batch, an annealed rate.

    python examples/gallery/word_lm_torch.py --dir runs/word_lm_torch
    python examples/gallery/word_lm_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import runhooks as rh

# --- The model, the data and the step

Hidden = tuple[Tensor, Tensor]

# A verb agrees with its subject, however far away that is: "the dogs that the cat sees run".
GRAMMAR = {
    "SENTENCE": ["ONE DOES .", "MANY DO .", "often ONE DOES .", "often MANY DO ."],
    "ONE": ["the NOUN", "the ADJECTIVE NOUN", "the NOUN that DOES", "the NOUN that MANY SEE"],
    "MANY": ["the NOUNS", "ADJECTIVE NOUNS", "the NOUNS that DO", "the NOUNS that ONE SEES"],
    "DOES": ["RESTS", "SEES ONE", "SEES MANY"],
    "DO": ["REST", "SEE ONE", "SEE MANY"],
    "NOUN": ["dog", "cat", "horse", "child", "bird"],
    "NOUNS": ["dogs", "cats", "horses", "children", "birds"],
    "ADJECTIVE": ["old", "young", "small", "gray"],
    "RESTS": ["sleeps", "waits", "runs"],
    "REST": ["sleep", "wait", "run"],
    "SEES": ["sees", "hears", "knows"],
    "SEE": ["see", "hear", "know"],
}
PARTS = {part for rules in GRAMMAR.values() for rule in rules for part in rule.split()}
WORDS = sorted(PARTS - GRAMMAR.keys())


class Network(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), size)
        self.lstm = nn.LSTM(size, size)
        self.dropout = nn.Dropout(0.2)
        self.scores = nn.Linear(size, len(WORDS))

    def forward(self, words: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """The scores [T, N, words] of what follows each of ``words`` [T, N]; the new state."""
        x, hidden = self.lstm(self.dropout(self.embedding(words)), hidden)
        return self.scores(self.dropout(x)), hidden


def zeros(columns: int, size: int = 64) -> Hidden:
    """The hidden state with which a text begins."""
    return torch.zeros(1, columns, size), torch.zeros(1, columns, size)


class Windows:
    """A text [rows, N], ``length`` rows at a time, each with the words that follow."""

    def __init__(self, text: Tensor, length: int) -> None:
        self.text, self.length = text, length

    def __len__(self) -> int:
        return math.ceil((len(self.text) - 1) / self.length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        following = self.text[1:]
        return zip(self.text[:-1].split(self.length), following.split(self.length), strict=True)


def load(columns: int) -> list[Tensor]:
    """Three texts [rows, N], for training, validation and test, read in N columns."""
    source = random.Random(0)
    return [written(source, count, columns) for count in (20_000, 4_000, 4_000)]


def written(source: random.Random, count: int, columns: int) -> Tensor:
    words: list[int] = []
    while len(words) < count:
        words += [WORDS.index(it) for it in expanded("SENTENCE", source)]
    return torch.tensor(words[:count]).reshape(columns, -1).T


def expanded(part: str, source: random.Random) -> list[str]:
    if part not in GRAMMAR:
        return [part]
    return [word for it in source.choice(GRAMMAR[part]).split() for word in expanded(it, source)]


def create(lr: float) -> dict[str, Any]:
    """The objects of the training, by the names of the step's parameters."""
    model = Network()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=lr)}


def loss_of(scores: Tensor, following: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def train_step(
    model: nn.Module, optimizer: Any, hidden: Hidden, words: Tensor, following: Tensor
) -> Any:
    optimizer.zero_grad()
    scores, hidden = model(words, hidden)
    loss = loss_of(scores, following)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    return hidden, {"loss": loss}


def test_step(model: nn.Module, text: Tensor) -> Any:
    """Read a whole text, window by window."""
    hidden, total = zeros(text.shape[1]), torch.zeros(())
    for words, following in Windows(text, 35):
        scores, hidden = model(words, hidden)
        total += loss_of(scores, following) * len(words)
    return {"loss": total / (len(text) - 1)}


def report(epoch: int, loss: float, lr: float) -> None:
    print(f"epoch {epoch}: perplexity {math.exp(loss):.4f}, learning rate {lr}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    (train_text, valid_text, test_text), objects = load(args.columns), create(args.lr)
    model, optimizer = objects["model"], objects["optimizer"]
    group, windows = optimizer.param_groups[0], Windows(train_text, args.length)
    first, best = 1, float("inf")
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, args.epochs + 1):
        model.train()
        hidden = zeros(args.columns)
        total, count = 0.0, 0
        for i, (words, following) in enumerate(windows):
            hidden, outputs = train_step(model, optimizer, hidden, words, following)
            hidden = hidden[0].detach(), hidden[1].detach()
            loss = outputs["loss"].item()
            total, count = total + loss * len(words), count + len(words)
            if (i + 1) % args.log_interval == 0:
                print(f"epoch {epoch}, batch {i + 1} of {len(windows)}: loss {loss:.6f}")
        report(epoch, total / count, group["lr"])
        model.eval()
        with torch.no_grad():
            loss = test_step(model, valid_text)["loss"].item()
        print(f"validation of epoch {epoch}: perplexity {math.exp(loss):.4f}")
        if loss < best:
            best = loss
            torch.save(model.state_dict(), args.dir / "best.pt")
        else:
            group["lr"] /= 4
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": epoch, "best": best}, last_file)
    model.load_state_dict(torch.load(args.dir / "best.pt"))
    with torch.no_grad():
        print(f"test: perplexity {test_step(model, test_text)['loss'].exp():.4f}")


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    (train_text, valid_text, test_text), objects = load(args.columns), create(args.lr)
    model = objects["model"]
    windows, hidden = Windows(train_text, args.length), zeros(args.columns)
    data: Any = {"data": windows, "epochs": args.epochs, "hidden": hidden}
    graph = rh.torch.graph(train_step, ["loss"], **data, **objects)
    with graph.as_default():
        rh.reset_each_epoch("hidden")
        rh.summary.scalar("loss")
        mean = rh.epoch_mean("loss")
        valid = rh.EvaluationHook(
            test_step, [valid_text], every_n_epochs=1, output_dir=args.dir / "test"
        )
        loss = valid.metric("loss")
        hooks = [
            valid,
            rh.LoggingTensorHook(["epoch", "loss"], every_n_iter=args.log_interval),
            rh.CallHook(report, ["epoch", mean, "learning_rate"], every_n_epochs=1),
            rh.ReduceOnPlateauHook(loss, factor=0.25, patience=0, threshold=0),
        ]
        best = rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(loss, mode="min")])
        steps: Any = {"save_checkpoint_steps": args.save_steps, "save_summaries_steps": 10}
        rh.train.train("train_op", args.dir, hooks, saver=best, **steps)
    model.load_state_dict(rh.load(args.dir, "model", best="loss", like=model.state_dict()))
    with torch.no_grad():
        print(f"test: perplexity {test_step(model.eval(), test_text)['loss'].exp():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn a made-up language with an LSTM.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/word_lm_torch"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--columns", type=int, default=20, help="parts that the text is cut into")
    parser.add_argument("--length", type=int, default=35, help="rows of a batch")
    parser.add_argument("--lr", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="batches between log lines")
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    torch.set_num_threads(1)  # more do not pay for arrays this small
    plain(args) if args.plain else hooked(args)
