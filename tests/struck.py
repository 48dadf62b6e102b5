"""A program that gets a signal where it touches a file for the so-and-so-many-th time.

``python struck.py FOLDER COUNT SIGNAL PROGRAM ARGUMENT...`` runs PROGRAM, which sends itself the
signal SIGNAL before the COUNT-th time that it opens, makes, moves or removes a file in FOLDER; at
COUNT 0 never. The file FOLDER-touched then says how often it has touched one.
"""

import os
import runpy
import sys
from pathlib import Path

TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}


def strike(event, arguments):
    global touched
    if event in TOUCHES and folder in os.fsdecode(arguments[0] if is_path(arguments[0]) else ""):
        touched += 1
        if touched == count:
            os.kill(os.getpid(), number)


def is_path(argument):
    return isinstance(argument, (str, bytes, os.PathLike))


if __name__ == "__main__":
    folder, count, number, program = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    touched = 0
    sys.argv = sys.argv[4:]
    sys.path.insert(0, str(Path(program).parent))
    sys.addaudithook(strike)
    runpy.run_path(program, run_name="__main__")
    Path(f"{folder}-touched").write_text(str(touched))
