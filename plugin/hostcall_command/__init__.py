"""The command `hostcall`, which also works if hostcall itself cannot be imported.

A failed import is the most likely reason to run `hostcall doctor`.
"""

import json
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line; if hostcall cannot be imported, exit with the reason and status 1."""
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
