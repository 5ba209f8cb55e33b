"""A process that runs functions for `processes.py`, each with a limit of its own.

    python child.py PREPARATION             reads calls from its input, and writes their results
    python child.py PREPARATION CALL        one call, after which the interpreter exits by itself

A call is JSON: the file and the name of the function, its arguments, and the limit in seconds. When
that is over the stacks of all threads are shown and the process ends. PREPARATION is Python code.
"""

import faulthandler
import importlib
import json
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

# For what the functions import from the tests.
_ROOT = str(Path(__file__).resolve().parents[3])
sys.path.append(_ROOT)


def keep_tensorflow_quiet() -> None:
    """It complains when a program traces often."""
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def run(call: dict[str, Any]) -> Any:
    keep_tensorflow_quiet()
    # TensorFlow and Keras are imported outside of the limit.
    sys.path.insert(0, os.path.dirname(call["file"]))
    module = importlib.import_module(os.path.splitext(os.path.basename(call["file"]))[0])
    sys.path.pop(0)
    faulthandler.dump_traceback_later(call["limit"], exit=True)
    return getattr(module, call["function"])(*call["args"])


def serve() -> None:
    # The output is for results alone, whatever the functions print.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            result = {"value": run(json.loads(line))}
        except BaseException:
            result = {"error": traceback.format_exc()}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(result), file=results, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    # What a shell runs in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(sys.argv[1])
    if len(sys.argv) > 2:
        run(json.loads(sys.argv[2]))
    else:
        serve()
