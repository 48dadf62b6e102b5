"""Programs in processes of their own that find modules loaded: that takes longer than they do.

``python launcher.py MODULE ...`` imports these; nothing of theirs may have run when a process is
made. It reads commands, a JSON list a line, and answers each with a number: ``["start", log,
program, *arguments]`` with the process that it makes, whose output goes to the file ``log``;
``["wait", process]`` with its exit status, or minus the signal that ended it; ``["living"]`` with
how many have not ended. When there are no more commands, or whoever gave them has died, all are
killed.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

NOW = os.WNOHANG | os.WNOWAIT


def start(log, program, *arguments):
    process = os.fork()
    if process:
        return process
    status = 1
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Path(log).open("w") as file:
            for output in (1, 2):
                os.dup2(file.fileno(), output)
        sys.argv = [program, *map(str, arguments)]
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # a server of TensorFlow's has no end


def obey():
    living = set()
    for line in sys.stdin:
        command, *words = json.loads(line)
        if command == "start":
            answer = start(*words)
            living.add(answer)
        elif command == "living":
            ended = {one for one in living if os.waitid(os.P_PID, one, os.WEXITED | NOW)}
            answer = len(living - ended)
        else:
            (process,) = words
            living.discard(process)
            answer = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(answer, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # what is loaded is no garbage, in all that are made
    gc.enable()
    try:
        obey()
    finally:
        os.killpg(0, signal.SIGKILL)  # started as the leader of a group of its own
