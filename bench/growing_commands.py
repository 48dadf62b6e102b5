"""How the time and memory of commands and ``EventAccumulator`` grow with tags and with runs.

The files are those of "growing-runs". Each command runs in its own process, in a terminal of 80
columns; imports are neither timed nor counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.growing_runs import RUNS, TAGS, many_runs, many_tags
from bench.measure import Contender, Effort, alternate
from bench.readers import MEASURED, reading
from bench.table import Growth, Table, tabulated

_COMMAND = MEASURED.format(
    imports="import io, os\n"
    "import runhooks.cli.{module}\n"
    "from contextlib import redirect_stdout, suppress\n"
    "from runhooks import events\n"
    "from runhooks.cli import main\n"
    "events.read, events.stream\n"  # imported when they are first used
    "os.environ['COLUMNS'] = '80'",
    read="sys.argv = ['runhooks', '{command}', sys.argv[1], *{options}]\n"
    "with redirect_stdout(io.StringIO()) as written, suppress(SystemExit):\n    main()\n"
    "points = len(written.getvalue())\nassert points",
)
_ACCUMULATOR = MEASURED.format(
    imports="from pathlib import Path\nfrom runhooks.tensorboard import EventAccumulator",
    read="points = 0\n"
    "for folder in sorted({path.parent for path in Path(sys.argv[1]).rglob('*tfevents*')}):\n"
    "    run = EventAccumulator(folder).Reload()\n"
    "    points += sum(len(run.Scalars(tag)) for tag in run.Tags()['scalars'])",
)


def command(module: str, name: str, *options: str) -> Contender:
    program = (
        _COMMAND.replace("{module}", module)
        .replace("{command}", name)
        .replace("{options}", repr(options))
    )
    return Contender(f"runhooks {name}", reading(program))


def tables(effort: Effort) -> Iterator[Growth]:
    yield from grown("tags", effort.sizes(*TAGS), many_tags, effort.turns(3))
    yield from grown("runs", effort.sizes(*RUNS), many_runs, effort.turns(3))


def grown(
    axis: str, sizes: tuple[int, ...], fill: Callable[[Path, int], int], turns: int
) -> Iterator[Growth]:
    """Yield the growth of seconds and of megabytes."""
    contenders = [
        command("tables", "show"),
        command("tables", "compare"),
        command("export", "export", "--csv"),
        Contender("EventAccumulator of runhooks", reading(_ACCUMULATOR)),
    ]
    seconds, megabytes = list[Table](), list[Table]()
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), size)
            returned = alternate(contenders, turns, folder)
        for tables, unit, place in ((seconds, "s", 0), (megabytes, "MB", 1)):
            rounds = {name: [it[place] for it in of_it] for name, of_it in returned.items()}
            tables.append(tabulated(f"commands: {unit}", unit, contenders, rounds))
    yield Growth(title="commands", axis=axis, sizes=list(sizes), tables=seconds)
    yield Growth(title="commands: memory", axis=axis, sizes=list(sizes), tables=megabytes)
