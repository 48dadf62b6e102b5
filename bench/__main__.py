"""``make bench``: a step, a summary, a checkpoint, of runhooks and its peers; ratios in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import compare, findings, page, results, text
from bench.topics import TOPICS, about, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="those of --list; default: all")
    parser.add_argument("--list", action="store_true", help="say what topics there are")
    parser.add_argument("--quick", action="store_true", help="see that all runs; no true figures")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="write the figures there; default: all topics are written to bench/results.json, and "
        "to docs/benchmarks.md",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="say which ratios differ from those in FILE"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.topics) - TOPICS.keys():
        parser.error(f"there is no topic {', '.join(sorted(unknown))}; --list says which there are")
    if options.list:
        for topic in TOPICS:
            print(f"{topic:16} {about(topic).splitlines()[0]}")
        return 0
    before = results.load(options.compare) if options.compare else None
    found = results.begin(options.quick)
    for topic in options.topics or TOPICS:
        print(f"\n== {topic}", flush=True)
        found["topics"][topic] = run(topic, options.quick)
        print(*text.lines_of(found["topics"][topic]), sep="\n", flush=True)
    print(f"\n{findings.noise(found)}")
    whole = not options.topics and not options.quick
    if path := options.results or (page.RESULTS if whole else None):
        results.save(found, path)
    if path == page.RESULTS:
        page.write(results.load(path), page.DOCS)
    if before is not None:
        print(*compare.lines_of(before, found), sep="\n")
    return int(any("failed" in topic for topic in found["topics"].values()))


if __name__ == "__main__":
    sys.exit(main())
