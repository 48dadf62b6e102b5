"""``docs/benchmarks.md`` of ``results.json``: ``python -m bench.page`` writes it and its plots."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import findings, plots
from bench.results import Results, load
from bench.table import NOISY, Growth, Row, Spread, Table, by_size, exponent, is_noisy
from bench.text import amount, goals, number
from bench.topics import Topic

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
DOCS = ROOT / "docs"

#: What is measured, by the name that packages have; the rest of the versions is in the results.
SHOWN = [
    "runhooks",
    "numpy",
    "jax",
    "jaxlib",
    "torch",
    "tensorflow",
    "tensorflow_cpu",
    "keras",
    "tensorboard",
    "clu",
    "pytorch-ignite",
    "lightning",
    "accelerate",
    "transformers",
    "tensorboardX",
    "tbparse",
    "orbax-checkpoint",
    "safetensors",
]

READING = f"""\
All contenders in a table are measured in one process. They take turns, one short round each, many
times, so that a slow moment of the machine affects all of them; contenders that need their own
process take turns as well. Each cost is the median of the rounds, followed by the lower and upper
quartiles. *Ratio* is the median, over all turns, of the ratio to the row named in the last column,
or else to the first row. *Adds* is the median difference to that row. A ratio is marked as noisy if
its quartiles differ by more than {NOISY:.0%} of it. Costs differ between machines; ratios should
not.

The first row is often a limit: the cost of the machine itself, such as the bare call, a copy in
memory or a write to disk."""


def write(results: Results, docs: Path) -> None:
    """Write the page to the folder of the docs, and its plots below it."""
    images = docs / "images" / "benchmarks"
    images.mkdir(parents=True, exist_ok=True)
    for name, topic in results["topics"].items():
        if topic["tables"] or topic["growths"]:
            plots.draw(topic, images / f"{name}.svg")
    (docs / "benchmarks.md").write_text(page(results))


def page(results: Results) -> str:
    """Return the page, in Markdown."""
    parts = [
        "# Benchmarks",
        "<!-- Written by `make bench` from bench/results.json: do not change it by hand. -->",
        *_conditions(results),
        "## How to read the tables",
        READING,
        "## Compared with the best peer",
        _standings(results),
        "## Where runhooks is slower",
        *_losses(results),
    ]
    for name, topic in results["topics"].items():
        parts += [f"## {name}", *_topic(name, topic)]
    return "\n\n".join(parts) + "\n"


def _conditions(results: Results) -> Iterator[str]:
    if results["quick"]:
        yield "**These figures mean nothing: a quick run only tests the programs.**"
    machine, versions = results["machine"], results["versions"]
    changed = ", with changes" if results["modified"] else ""
    yield (
        "What runhooks costs, compared with other libraries and with the machine's own limits. "
        "All figures come from one run of `make bench`, but for topics that say otherwise. "
        "[results.json](../bench/results.json) contains them too, with the versions of all "
        "packages."
    )
    shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
    facts = {
        "date": results["date"],
        "commit": f"`{results['commit'][:12] or 'unknown'}`{changed}",
        "machine": f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']:.0f} GB of memory, {machine['system']}",
        "noise": findings.noise(results),
        "versions": f"Python {machine['python']}, {shown}",
    }
    yield _markdown(["", ""], facts.items())


def _standings(results: Results) -> str:
    rows = []
    for it in findings.beside_the_best(results):
        name = "" if it.ours["name"] == "runhooks" else f": {it.ours['name']}"
        ours, theirs = (amount(row["cost"]["median"], it.unit) for row in (it.ours, it.peer))
        rows.append([f"{it.what}{name}", ours, f"{it.peer['name']}: {theirs}", number(it.times)])
    return _markdown(["what", "runhooks", "best peer", "peer / runhooks"], rows, numbers="13")


def _losses(results: Results) -> Iterator[str]:
    lost = [
        [
            it.what,
            it.ours["name"],
            it.peer["name"],
            number(it.times),
            _why(it.peer),
        ]
        for it in findings.losses(results)
    ]
    head = ["what", "runhooks", "faster peer", "peer / runhooks", "why"]
    yield _markdown(head, lost, numbers="3") if lost else "No peer is faster."
    missed = [
        [
            f"{it.what}: {it.row['name']}",
            number(it.measured["median"]),
            _quartiles(it.measured),
            number(it.goal),
            it.unit,
            "Its lower quartile meets the goal." if _meets_at_times(it) else _why(it.row),
        ]
        for it in findings.missed(results)
    ]
    if missed:
        yield "These rows add more than their goal:"
        yield _markdown(["what", "adds", "quartiles", "goal", "", "why"], missed, numbers="123")


def _topic(name: str, topic: Topic) -> Iterator[str]:
    yield topic["about"].replace("``", "`")
    if "failed" in topic:
        yield "**This topic failed in this run.**"
    if topic["tables"] or topic["growths"]:
        yield f"![{name}: costs, with their quartiles](images/benchmarks/{name}.svg)"
    for table in topic["tables"]:
        yield f"### {_capital(table['title'])}"
        yield _table(table)
    for growth in topic["growths"]:
        yield f"### {_capital(growth['title'])}, by {growth['axis']}"
        yield _growth(growth)
    others = topic["others"]
    if others is not None:
        busy = f"other programs took {others:.0%} of the processors"
        after = f" after the other topics ({topic['again']})" if "again" in topic else ""
        yield f"Measured{after} in {topic['seconds']:.0f} s, in which {busy}."


def _table(table: Table) -> str:
    head = [f"{table['turns']} rounds", table["unit"], "quartiles", "ratio", "adds", "goal", ""]
    return _markdown(head, [_row(row) for row in table["rows"]], numbers="12345")


def _row(row: Row) -> list[str]:
    notes = [f"over {row['base']}"] if "added" in row else []
    notes += ["noisy"] if is_noisy(row["ratio"]) else []
    return [
        row["name"],
        number(row["cost"]["median"]),
        _quartiles(row["cost"]),
        number(row["ratio"]["median"]),
        number(row["added"]["median"]) if "added" in row else "",
        goals(row),
        "; ".join(notes),
    ]


def _growth(growth: Growth) -> str:
    sizes = growth["sizes"]
    head = [growth["tables"][0]["unit"], *(f"{size:,}" for size in sizes), "exponent"]
    rows = []
    for name, costs in by_size(growth).items():
        slope = exponent(sizes, costs)
        shown = "" if slope is None else f"{slope:.2f}"
        rows.append([name, *map(number, costs), shown])
    return _markdown(head, rows, numbers="".join(map(str, range(1, len(head)))))


def _meets_at_times(miss: findings.Miss) -> bool:
    return miss.measured["low"] <= miss.goal


def _why(row: Row) -> str:
    return row.get("why", "not known yet")


def _quartiles(spread: Spread) -> str:
    return f"{number(spread['low'])} to {number(spread['high'])}"


def _capital(title: str) -> str:
    return title[0].upper() + title[1:]


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "") -> str:
    """Return a table; ``numbers`` are the columns to align at the right."""
    aligned = ["---:" if str(at) in numbers else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, aligned, *rows])


if __name__ == "__main__":
    write(load(Path(sys.argv[1]) if sys.argv[1:] else RESULTS), DOCS)
