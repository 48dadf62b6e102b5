"""``make bench``: a step, a summary, a checkpoint, of runhooks and its peers; ratios in one run."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import compare, findings, page, results, text
from bench.machine import machine
from bench.topics import GPU_TOPICS, TOPICS, about, run

GPU_SECS = 600  # for all topics of a GPU together: one is had for minutes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="those of --list; default: all")
    parser.add_argument("--list", action="store_true", help="say what topics there are")
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="measure on a GPU, for ten minutes at most; without one, the same with less of all",
    )
    parser.add_argument("--quick", action="store_true", help="see that all runs; no true figures")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="write the figures there; default: all topics are written to bench/results.json, and "
        "to docs/benchmarks.md",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="replace these topics in bench/results.json and docs/benchmarks.md, which say so",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="say which ratios differ from those in FILE"
    )
    options = parser.parse_args(arguments)
    topics = GPU_TOPICS if options.gpu else TOPICS
    if unknown := set(options.topics) - topics.keys():
        parser.error(f"there is no topic {', '.join(sorted(unknown))}; --list says which there are")
    if options.update and (options.quick or options.gpu or options.results or not options.topics):
        parser.error("--update is for topics, named before it, without --quick, --gpu, --results")
    if options.update and results.load(page.RESULTS)["machine"] != machine():
        parser.error("bench/results.json is of another machine: measure all topics")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    topics = GPU_TOPICS if options.gpu else TOPICS
    if options.list:
        for topic in topics:
            print(f"{topic:16} {about(topic).splitlines()[0]}")
        return 0
    before = results.load(options.compare) if options.compare else None
    found = results.begin(options.quick)
    end = time.monotonic() + GPU_SECS if options.gpu else None
    for topic in options.topics or topics:
        print(f"\n== {topic}", flush=True)
        most_secs = None if end is None else max(0, end - time.monotonic())
        found["topics"][topic] = run(topic, options.quick, most_secs)
        print(*text.lines_of(found["topics"][topic]), sep="\n", flush=True)
    print(f"\n{findings.noise(found)}")
    if options.update:
        found = results.updated(results.load(page.RESULTS), found)
    whole = options.update or not (options.topics or options.quick or options.gpu)
    if path := options.results or (page.RESULTS if whole else None):
        results.save(found, path)
    if path == page.RESULTS:
        page.write(results.load(path), page.DOCS)
    if before is not None:
        print(*compare.lines_of(before, found), sep="\n")
    return int(any("failed" in topic for topic in found["topics"].values()))


if __name__ == "__main__":
    sys.exit(main())
