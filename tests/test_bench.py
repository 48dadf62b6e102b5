"""The benchmarks: their programs run, and the page says what was measured."""

import functools
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

from bench import compare, page, results, topics, whole_programs
from bench.__main__ import main
from bench.findings import beside_the_best, losses, missed
from bench.lines import of_bookkeeping
from bench.measure import Contender
from bench.programs.killed import Runs, lost, per_1000
from bench.table import Growth, exponent, tabulated
from bench.topics import GPU_TOPICS, TOPICS, Topic, run
from tests.gallery.lines import counts


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The file of a quick run of one topic."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    assert main(["--quick", "numpy", "--results", str(path)]) == 0
    return path


begun = functools.cache(results.begin)  # asks git, and looks for all packages


def made_of(*tables, growths=()):
    """Results that have these tables."""
    topic = Topic(about="What it is.", seconds=1.0, others=None, tables=[*tables], growths=growths)
    return begun(quick=False) | {"topics": {"topic": topic}}


def nothing(times):
    """What is measured is given."""


RACE = [
    Contender("a bare call", nothing, role="limit"),
    Contender("ours", nothing, "a bare call", budget=1.0, why="It does more."),
    Contender("slow peer", nothing, role="peer", why="never shown"),
    Contender("fast peer", nothing, role="peer", why="It does less."),
]
ROUNDS = {
    "a bare call": [1.0, 10.0, 2.0],  # the machine was slow in the second turn
    "ours": [3.0, 30.0, 6.0],
    "slow peer": [6.0, 60.0, 12.0],
    "fast peer": [1.5, 15.0, 3.0],
}


def test_a_run_writes_what_it_has_measured(quick):
    found = results.load(quick)
    assert found["quick"]
    (topic,) = found["topics"].values()
    (table,) = topic["tables"]
    bare, *sessions = table["rows"]
    assert bare["role"] == "limit"
    assert sessions
    assert all(row["cost"]["median"] > 0 for row in table["rows"])
    assert [growth["axis"] for growth in topic["growths"]] == ["arrays of state", "sleeping hooks"]


def test_the_page_and_its_plots_are_made_of_the_results_alone(quick, tmp_path):
    for docs in (tmp_path / "a", tmp_path / "b"):
        page.write(results.load(quick), docs)
    assert (tmp_path / "a/benchmarks.md").read_bytes() == (
        tmp_path / "b/benchmarks.md"
    ).read_bytes()
    text = (tmp_path / "a/benchmarks.md").read_text()
    assert "| monitored session, five hooks, none due | " in text
    (image,) = re.findall(r"!\[.*\]\((.*)\)", text)
    plot = (tmp_path / "a" / image).read_bytes()
    assert "a trivial step of NumPy, µs" in "".join(ElementTree.fromstring(plot).itertext())
    assert plot == (tmp_path / "b" / image).read_bytes()


def test_the_page_of_the_docs_is_that_of_the_results():
    if not page.RESULTS.exists():
        pytest.skip("no results are kept in the repository yet")
    found = results.load(page.RESULTS)
    assert (page.DOCS / "benchmarks.md").read_text() == page.page(found)


def test_ratios_are_those_within_a_turn():
    table = tabulated("race", "µs", RACE, ROUNDS)
    _, ours, slow, _ = table["rows"]
    assert ours["cost"] == {"median": 6.0, "low": 4.5, "high": 18.0}
    assert ours["ratio"] == {"median": 3.0, "low": 3.0, "high": 3.0}
    assert ours["added"]["median"] == 4.0
    assert slow["ratio"]["median"] == 6.0
    assert slow["beside"] == "ours"
    assert slow["advantage"]["median"] == 2.0


def test_what_is_lost_is_shown_with_the_reason():
    found = made_of(tabulated("race", "µs", RACE, ROUNDS))
    assert [(it.peer["name"], it.times) for it in losses(found)] == [("fast peer", 0.5)]
    assert [it.peer["name"] for it in beside_the_best(found)] == ["fast peer"]
    assert [it.row["name"] for it in missed(found)] == ["ours"]
    text = page.page(found)
    assert "| race | ours | fast peer | 0.50 | It does less. |" in text
    assert "| race: ours | 4.00 | 3.00 to 12.0 | 1.00 | µs | It does more. |" in text
    assert "never shown" not in text


def test_a_goal_for_a_ratio_is_shown_and_missed():
    race = [it._replace(most=2.0) if it.name == "slow peer" else it for it in RACE]
    found = made_of(tabulated("race", "µs", race, ROUNDS))
    assert [(it.row["name"], it.unit) for it in missed(found)] == [
        ("ours", "µs"),
        ("slow peer", "times"),
    ]
    text = page.page(found)
    assert "| race: slow peer | 6.00 | 6.00 to 6.00 | 2.00 | times | never shown |" in text
    assert "| 6.00 |  | 2.00 times |  |" in text


def test_a_ratio_that_changes_between_turns_is_called_noisy():
    steady = tabulated("race", "µs", RACE, ROUNDS)
    assert "noisy" not in page.page(made_of(steady)).split("## topic")[1]
    noisy = tabulated("race", "µs", RACE, ROUNDS | {"ours": [3.0, 99.0, 2.0]})
    text = page.page(made_of(noisy))
    assert "over a bare call; noisy" in text
    assert "| noise | 1 of 3 ratios are noisy |" in text


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_is_that_of_the_largest_sizes(power):
    sizes = [1, 10, 30, 100]
    assert exponent(sizes, [99.0, *(7 * size**power for size in sizes[1:])]) == pytest.approx(power)


def test_growth_is_shown_by_size_with_its_exponent():
    tables = [
        tabulated(
            "reading",
            "s",
            RACE,
            {name: [size * it for it in costs] for name, costs in ROUNDS.items()},
        )
        for size in (1, 10)
    ]
    growth = Growth(title="reading", axis="tags", sizes=[1, 10], tables=tables)
    text = page.page(made_of(growths=[growth]))
    assert "| s | 1 | 10 | exponent |" in text
    assert "| ours | 6.00 | 60.0 | 1.00 |" in text
    assert "| ours, what it adds | 4.00 | 40.0 | 1.00 |" in text
    assert "| reading, 1 tags | ours | fast peer |" in text
    assert "| reading, 10 tags: ours | 60.0 s | fast peer: 30.0 s | 0.50 |" in text
    assert "| reading, 1 tags: ours | 6.00 s" not in text  # the largest size stands for all


def test_ratios_that_have_moved_are_named():
    before = made_of(tabulated("race", "µs", RACE, ROUNDS))
    after = made_of(tabulated("race", "µs", RACE, ROUNDS | {"ours": [4.0, 40.0, 8.0]}))
    assert list(compare.lines_of(before, before)) == ["\n0 of 3 ratios have moved by more than 15%"]
    assert "race: ours: 3.00 -> 4.00 (+33%)" in list(compare.lines_of(before, after))


def test_a_topic_that_is_measured_again_says_so():
    whole = made_of(tabulated("race", "µs", RACE, ROUNDS))
    whole["topics"]["other"] = whole["topics"]["topic"] | {"others": 0.0}
    later = made_of(tabulated("race", "µs", RACE, ROUNDS | {"ours": [4.0, 40.0, 8.0]}))
    later["topics"]["topic"]["others"] = 0.0
    later |= {"date": "2030-01-01", "commit": "c0ffee", "modified": False}
    text = page.page(results.updated(whole, later))
    of_topic, of_other = re.split("## topic|## other", text)[1:]
    assert "| ours | 8.00 |" in of_topic
    assert "Measured after the other topics (2030-01-01, commit `c0ffee`) in 1 s" in of_topic
    assert "| ours | 6.00 |" in of_other
    assert "Measured in 1 s" in of_other
    assert "2030" not in text.partition("## ")[0]


@pytest.mark.parametrize("words", [[], ["numpy", "--quick"], ["gpu-step", "--gpu"]])
def test_update_is_for_topics_that_are_measured_in_full(words, capsys):
    with pytest.raises(SystemExit):
        main(["--update", *words])
    assert "--update is for topics" in capsys.readouterr().err


def test_a_topic_that_fails_says_why_and_hides_no_other(monkeypatch, tmp_path):
    (tmp_path / "tbparse.py").write_text("raise RuntimeError('out of order')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    topic = run("growing-runs", quick=True)
    assert "out of order" in topic["failed"]
    assert topic["tables"] == topic["growths"] == []
    found = made_of() | {"topics": {"growing-runs": topic}}
    assert "This topic failed" in page.page(found)


def test_what_a_topic_has_measured_before_it_fails_is_kept(monkeypatch, tmp_path):
    def tables(effort):
        yield tabulated("race", "µs", RACE, ROUNDS)
        raise RuntimeError("no more")

    monkeypatch.setitem(sys.modules, "bench.half", SimpleNamespace(tables=tables))
    monkeypatch.setitem(topics.MODULES, "half", "half")
    path = tmp_path / "found.json"
    with pytest.raises(RuntimeError, match="no more"):
        topics.main("half", str(path))
    (kept,) = json.loads(path.read_text())
    assert kept["title"] == "race"


def test_a_topic_that_takes_too_long_is_ended():
    topic = run("numpy", quick=True, most_secs=0)
    assert topic["failed"].endswith("ended: it had 0 s\n")
    assert topic["tables"] == topic["growths"] == []


@pytest.mark.slow
def test_a_topic_of_a_gpu_says_where_it_was_measured(tmp_path):
    path = tmp_path / "results.json"
    assert main(["--gpu", "--quick", "gpu-ranks", "--results", str(path)]) == 0
    (topic,) = results.load(path)["topics"].values()
    titles = [table["title"] for table in topic["tables"]]
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    assert titles == [
        f"a step of a GPT, one rank of {backend}",
        f"a checkpoint of a GPT, one rank of {backend}",
    ]


@pytest.mark.parametrize(("words", "offered"), [([], TOPICS), (["--gpu"], GPU_TOPICS)])
def test_each_topic_says_what_it_is(capsys, words, offered):
    assert main([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(offered)
    assert all(len(line.split()) > 4 for line in lines)


def test_a_topic_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        main(["nosuch"])
    assert "there is no topic nosuch; --list says which there are" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is not JSON"), ("[]", "has schema None"), ('{"schema": 0}', "has schema 0")],
)
def test_what_are_no_results(tmp_path, text, says):
    path = Path(tmp_path / "results.json")
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        results.load(path)


def test_figures_are_kept_to_four_digits(tmp_path):
    found = made_of(tabulated("race", "µs", RACE, ROUNDS | {"ours": [1 / 3] * 3}))
    results.save(found, tmp_path / "results.json")
    assert '"median": 0.3333,' in (tmp_path / "results.json").read_text()


GALLERY = """
def step(): return 1
def report(): return 2
def plain():
    # It is by hand.
    for _ in data:
        step()

    report(save())
def save():
    '''Only by hand.'''
    return 3
def hooked(): return step(), report()
"""
PEER = """
from gallery import report
class Module:
    def training_step(self): return 4
def train():
    module = Module()
    return report(module)
"""


def test_bookkeeping_is_what_the_loops_do_not_share_and_a_peer_that_makes_the_step_has_less():
    assert of_bookkeeping(GALLERY, PEER) == (4 + 2, 1, 2 + 3 - len(["step"]))


@pytest.mark.parametrize("program", whole_programs.PROGRAMS, ids=lambda it: it.gallery)
def test_whole_programs_are_shorter_under_runhooks(program):
    table = whole_programs.bookkeeping(program)
    plain, ours, peer = table["rows"]
    assert (plain["role"], ours["name"], peer["name"]) == ("limit", "runhooks", program.library)
    file = whole_programs.EXAMPLES / f"{program.gallery.replace('.', '/')}.py"
    assert (plain["cost"]["median"], ours["cost"]["median"]) == counts(file)
    assert peer["beside"] == "runhooks"
    assert peer["advantage"]["median"] > 1


#: Saves after every second step.
COUNTING = """
class Batches:
    def __iter__(self):
        yield from [0] * 100

def train(options):
    saved = options.dir / "step"
    options.dir.mkdir(exist_ok=True)
    begin = int(saved.read_text()) if saved.exists() else 0
    for step, _ in zip(range(begin + 1, options.steps + 1), Batches()):
        if step % 2 == 0 and options.saves:
            saved.write_text(f"{step}")
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """Runs of a program, killed at step 5 of 8."""
    (tmp_path / "counting.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{whole_programs.ROOT}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def runs(saves):
        options = {"steps": 8, "saves": saves}
        program = "counting", "train", "counting", options
        return Runs(*program, ranks=1, timed=(2, 4), killed_at=5, steps=8)

    return runs


def test_a_program_is_killed_and_goes_on_from_its_last_checkpoint(counting, tmp_path):
    runs = counting(saves=True)
    assert runs.killed() > 0
    (saved,) = tmp_path.glob("*/run/step")
    assert saved.read_text() == "4"
    assert runs.restarted() > 0
    assert saved.read_text() == "8"


def test_a_program_that_begins_anew_after_a_kill_has_no_figure(counting):
    runs = counting(saves=False)
    runs.killed()
    with pytest.raises(ValueError, match="8 steps were made after the kill at 5 of 8"):
        runs.restarted()


def test_what_is_lost_ends_with_the_step_of_the_kill():
    again = [11.0, 12.0, 13.0, 14.0, 15.0]  # steps 6 to 10, of which 8 is that of the kill
    assert lost(3.0, again, killed_at=8, steps=10) == 13.0 - 3.0


def test_seconds_of_1000_steps_are_those_of_whole_epochs():
    times = [1.0, 5.0, 5.5, 6.0, 6.5, 99.0]  # compiles in step 2, and is killed behind step 5
    assert per_1000(times, first=2, last=5) == 500.0
