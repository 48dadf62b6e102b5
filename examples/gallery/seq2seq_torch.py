"""A sequence-to-sequence model in PyTorch: attention, buckets of lengths, teacher forcing, samples.

    python examples/gallery/seq2seq_torch.py --dir runs/seq2seq_torch
    python examples/gallery/seq2seq_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

import runhooks as rh

# --- The model, the data and the step

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
ONES += " fifteen sixteen seventeen eighteen nineteen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
WORDS = ["<pad>", "<end>", *ONES.split(), *TENS.split(), "hundred", "thousand"]
PAD, END = 0, 1
LONGEST = 10  # words of a number below a million, with <end>


class Network(nn.Module):
    """Reads the digits of numbers, and writes their words with attention to the digits."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.digits = nn.Embedding(10, size)
        self.encoder = nn.GRU(size, size // 2, batch_first=True, bidirectional=True)
        self.words = nn.Embedding(len(WORDS), size)
        self.decoder = nn.GRUCell(2 * size, size)
        self.scores = nn.Linear(2 * size, len(WORDS))

    def forward(self, digits: Tensor, count: int, forced: Tensor | None = None) -> Tensor:
        """The scores [N, count, words] of ``count`` words for ``digits`` [N, length].

        Each word is written with the one before it: of ``forced`` [N, count], the right ones, or
        else of those with the best scores.
        """
        read, _ = self.encoder(self.digits(digits))
        hidden, seen = read.mean(1), torch.zeros_like(read[:, 0])
        word, scores = torch.full((len(digits),), END), []
        for i in range(count):
            hidden = self.decoder(torch.cat([self.words(word), seen], 1), hidden)
            weights = torch.einsum("nls,ns->nl", read, hidden).softmax(1)
            seen = torch.einsum("nl,nls->ns", weights, read)
            scores.append(self.scores(torch.cat([hidden, seen], 1)))
            word = scores[-1].argmax(1) if forced is None else forced[:, i]
        return torch.stack(scores, 1)


class Buckets(Sampler[list[int]]):
    """Batches of indices of numbers with equally many digits, in another order in each epoch."""

    def __init__(self, lengths: list[int], batch_size: int) -> None:
        self.batch_size = batch_size
        places = torch.tensor(lengths)
        self.buckets = [(places == it).nonzero()[:, 0] for it in sorted(set(lengths))]

    def __len__(self) -> int:
        return sum(-(-len(it) // self.batch_size) for it in self.buckets)

    def __iter__(self) -> Iterator[list[int]]:
        shuffled = [it[torch.randperm(len(it))] for it in self.buckets]
        batches = [batch.tolist() for it in shuffled for batch in it.split(self.batch_size)]
        return iter([batches[i] for i in torch.randperm(len(batches)).tolist()])


def load(batch_size: int) -> tuple[DataLoader[Any], list[tuple[Tensor, Tensor]]]:
    """The batches of digits [N, length] and words [N, count] for training and test."""
    source = random.Random(0)
    numbers = [source.randrange(10 ** source.randint(1, 6)) for _ in range(2_400)]
    train, test = numbers[:2_000], set(numbers[2_000:]) - set(numbers[:2_000])
    buckets = Buckets([len(str(it)) for it in train], batch_size)
    by_length = [[it for it in sorted(test) if len(str(it)) == length] for length in (6, 5, 4, 3)]
    loader: Any = DataLoader(train, batch_sampler=buckets, collate_fn=batch_of)  # type: ignore[arg-type]
    return loader, [batch_of(it) for it in by_length]


def batch_of(numbers: list[int]) -> tuple[Tensor, Tensor]:
    words = [torch.tensor([WORDS.index(w) for w in spelled(it)] + [END]) for it in numbers]
    digits = torch.tensor([[int(digit) for digit in str(it)] for it in numbers])
    return digits, pad_sequence(words, batch_first=True, padding_value=PAD)


def spelled(number: int) -> list[str]:
    for unit, word in ((1000, "thousand"), (100, "hundred")):
        if number >= unit:
            return [*spelled(number // unit), word, *rest(number % unit)]
    if number >= 20:
        return [TENS.split()[number // 10 - 2], *rest(number % 10)]
    return [ONES.split()[number]]


def rest(number: int) -> list[str]:
    return spelled(number) if number else []


def text_of(words: Tensor) -> str:
    """The words before the first <end>."""
    return " ".join(WORDS[it] for it in words.tolist()).partition(" <end>")[0]


def create(lr: float) -> dict[str, Any]:
    """The objects of the training, by the names of the step's parameters."""
    model = Network()
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=lr)}


def train_step(model: nn.Module, optimizer: Any, digits: Tensor, words: Tensor) -> Any:
    forced = words if random.random() < 0.5 else None  # for a whole batch
    optimizer.zero_grad()
    scores = model(digits, words.shape[1], forced)
    loss = functional.cross_entropy(scores.flatten(0, 1), words.flatten(), ignore_index=PAD)
    loss.backward()
    optimizer.step()
    return {"loss": loss, "tokens": (words != PAD).sum()}


def test_step(model: nn.Module, digits: Tensor, words: Tensor) -> Any:
    written = [text_of(it) for it in model(digits, LONGEST).argmax(2)]
    right = [text_of(it) for it in words]
    numbers = ["".join(map(str, it)) for it in digits.tolist()]
    samples = [f"- {it}: {text}" for it, text in zip(numbers[:8], written, strict=False)]
    accuracy = sum(map(str.__eq__, written, right)) / len(right)
    return {"accuracy": accuracy, "samples": "\n".join(samples)}


def report(epoch: int, loss: float) -> None:
    print(f"epoch {epoch}: mean loss {loss:.6f}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    (loader, test_batches), objects = load(args.batch_size), create(args.lr)
    model, optimizer = objects["model"], objects["optimizer"]
    first, best = 1, 0.0
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, args.epochs + 1):
        model.train()
        total, count = 0.0, 0
        for digits, words in loader:
            outputs = train_step(model, optimizer, digits, words)
            tokens = outputs["tokens"].item()
            total, count = total + outputs["loss"].item() * tokens, count + tokens
        report(epoch, total / count)
        model.eval()
        right, count = 0.0, 0
        with torch.no_grad():
            for i, (digits, words) in enumerate(test_batches):
                tested = test_step(model, digits, words)
                right, count = right + tested["accuracy"] * len(words), count + len(words)
                if i == 0:
                    (args.dir / f"samples_{epoch}.txt").write_text(tested["samples"])
        print(f"test of epoch {epoch}: {right / count:.2%} right")
        if right / count > best:
            best = right / count
            torch.save(model.state_dict(), args.dir / "best.pt")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": epoch, "best": best}, last_file)


def hooked(args: argparse.Namespace) -> None:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    (loader, test_batches), objects = load(args.batch_size), create(args.lr)
    data: Any = {"data": loader, "epochs": args.epochs}
    graph = rh.torch.graph(train_step, ["loss", "tokens"], **data, **objects)
    with graph.as_default():
        rh.summary.scalar("loss")
        mean = rh.epoch_mean("loss", weight="tokens")
        test = rh.EvaluationHook(
            test_step,
            test_batches,
            every_n_epochs=1,
            summary_op=lambda test: rh.summary.text("samples", test["samples"]),
            output_dir=args.dir / "test",
        )
        hooks = [test, rh.CallHook(report, ["epoch", mean], every_n_epochs=1)]
        best = rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("accuracy"))])
        steps: Any = {"save_checkpoint_steps": args.save_steps, "save_summaries_steps": 10}
        rh.train.train("train_op", args.dir, hooks, saver=best, **steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn to spell numbers out.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/seq2seq_torch"))
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    torch.set_num_threads(1)  # more do not pay for arrays this small
    plain(args) if args.plain else hooked(args)
