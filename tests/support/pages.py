"""The examples of the pages: blocks of Python, commands, and their output.

A ```text block right behind a ```python block is what that one prints, and a ```console block has
commands of this package, each behind a `$`, with what they print. All of it becomes programs with a
line of marks between the parts, which a test has run and whose output it compares.
"""

import importlib.metadata
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
END = "--- end of block ---"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = f"print({END!r}, flush=True)"
_RUN = "from tests.support.pages import run_command"


def names() -> list[str]:
    """README.md and all pages of docs/."""
    return ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def as_program(text: str) -> str:
    """The Python blocks and the commands in one file, each on the lines that it has in the page."""
    lines = [""] * (text.count("\n") + 1)
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2))
        if block[1] == "python":
            code = block[2].splitlines()
        elif block[1] == "console":
            commands = ", ".join(repr(command) for command, _ in _commands(block[2]))
            code = [f"{_RUN}; [*map(run_command, [{commands}])]"]
        else:
            continue
        lines[first : first + len(code)] = code
        lines[text.count("\n", 0, block.end(2))] = MARK
    return "\n".join(lines)


def expected_outputs(text: str) -> list[str | None]:
    """Return the output of each Python block and console, None where the page does not show it."""
    outputs: list[str | None] = []
    end_of_python = 0
    for block in _BLOCK.finditer(text):
        if block[1] == "python":
            outputs.append(None)
            end_of_python = block.end()
        elif block[1] == "console":
            printed = "".join(printed for _, printed in _commands(block[2]))
            outputs.append(printed or None)
        elif block[1] == "text" and outputs and not text[end_of_python : block.start()].strip():
            outputs[-1] = block[2]
    return outputs


def run_command(command: str) -> None:
    """Runs a command of this package, such as `hostcall explain model`, in this process."""
    name, *arguments = shlex.split(command)
    (entry_point,) = importlib.metadata.entry_points(group="console_scripts", name=name)
    sys.argv = [name, *arguments]
    try:
        status = entry_point.load()()
    except SystemExit as ended:
        status = ended.code
    if status:
        raise RuntimeError(f"{command} ended with status {status}")


def _commands(console: str) -> list[tuple[str, str]]:
    """The commands of a console, each with what it prints. A `\\` continues a command."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)
    assert not parts[0], "a console begins with a command"
    split = [re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL) for part in parts[1:]]
    return [(match[1].replace("\\\n", " ").strip(), match[2]) for match in split if match]
