"""Every Python block of README.md and docs/ runs, and every link between the pages leads somewhere.

A ```text block right behind a ```python block is what that one prints.
"""

import re
from pathlib import Path

import pytest

from tests.support.stress.template import Template

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "--- end of block ---"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def as_program(text: str) -> str:
    """The Python blocks in one file, each on the lines that it has in the page."""
    lines = [""] * (text.count("\n") + 1)
    for block in _BLOCK.finditer(text):
        if block[1] != "python":
            continue
        first = text.count("\n", 0, block.start(2))
        code = block[2].splitlines()
        lines[first : first + len(code)] = code
        lines[first + len(code)] = f"print({_END!r}, flush=True)"
    return "\n".join(lines)


def expected_outputs(text: str) -> list[str | None]:
    """For each Python block what it has to print, None where the page does not say."""
    outputs: list[str | None] = []
    end_of_python = 0
    for block in _BLOCK.finditer(text):
        if block[1] == "python":
            outputs.append(None)
            end_of_python = block.end()
        elif block[1] == "text" and outputs and not text[end_of_python : block.start()].strip():
            outputs[-1] = block[2]
    return outputs


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_and_print_what_the_page_says(
    fresh_python: Template, page: str, tmp_path: Path
) -> None:
    text = read(page)
    # Not by the page's own name, under which a package of that name could not be imported.
    program = tmp_path / f"page_{Path(page).stem.replace('-', '_')}.py"
    program.write_text(as_program(text), encoding="utf-8")
    ended = fresh_python.run_program(as_program(text), str(program))
    assert ended.status == 0, f"a block of {page} failed:\n{ended.printed}{ended.said}"
    printed = ended.printed.split(f"{_END}\n")
    for number, expected in enumerate(expected_outputs(text)):
        if expected is not None:
            assert printed[number] == expected, f"block {number + 1} of {page}"


def test_readme_names_the_two_commands_and_has_an_example() -> None:
    text = read("README.md")
    assert "make demo" in text
    assert "make test" in text
    assert expected_outputs(text)[0] is not None


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_relative_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            assert anchor in anchors, f"{page} links to {target}"


def test_files_that_architecture_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|cc|h))`", read("docs/architecture.md")))
    folders = ("", "plugin/hostcall", "mlir/hostcall_mlir", "csrc")
    found = {name for name in named if any((ROOT / folder / name).exists() for folder in folders)}
    assert named - found == set()
