"""The command `hostcall`, which has to say something where hostcall itself cannot be imported too.

Most likely that is why somebody asks `hostcall doctor`.
"""

import json
import sys
from typing import NoReturn


def main() -> None:
    """Runs the command line; exits with status 1 and the reason where there is none to run."""
    from hostcall_command.commands import main as run

    try:
        run(prog_name="hostcall")
    except ImportError as error:
        _exit(error)


def _exit(error: ImportError) -> NoReturn:
    if "--json" in sys.argv:
        print(json.dumps({"importable": False, "error": str(error)}, indent=2))  # noqa: T201
    else:
        print(error, file=sys.stderr)  # noqa: T201
    raise SystemExit(1) from error
