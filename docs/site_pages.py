"""Hooks of mkdocs for the site, beside rendering docs/: pages of other places, and links to them.

The pages are written to be read in the repository. README.md is the site's home; the examples, the
notebooks, the benchmarks' page, the changelog and the rules for contributors become pages, too. A
link that leads to one of these in the repository leads to its page in the site.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

# From places of the repository to those of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "cmake/README.md": "project/builds.md",
    "tests/mutations/README.md": "project/mutations.md",
    "wheels/README.md": "project/wheels.md",
    "LICENSE": "LICENSE.txt",
    "examples": "examples/index.md",
}
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
PAGES |= {f"examples/{name}": f"examples/{name.removesuffix('.py')}.md" for name in EXAMPLES}
NOTEBOOKS = sorted(path.stem for path in (ROOT / "docs/notebooks").glob("*.ipynb"))
PAGES |= {f"docs/notebooks/{name}.ipynb": f"notebooks/{name}.md" for name in NOTEBOOKS}

# The search finds these pages behind those that explain.
_FOUND_LATE = "---\nsearch:\n  boost: 0.2\n---\n"

_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_NAME = re.compile(r"<code>([^<]{16,})</code>")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that docs/ does not have."""
    from mkdocs.structure.files import File  # here, for the tests that run without it

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=content(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Has links lead to where the site has what they mean."""
    sources = {page: source for source, page in PAGES.items()}
    uri = page.file.src_uri
    source = sources.get(uri, f"docs/{uri}")

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        place = PAGES.get(target, target.removeprefix("docs/"))
        path = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"]({path}{link[2] or ''})"

    return _LINK.sub(rewritten, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Has long names in tables break behind a slash, a colon or an underscore, and nowhere else."""
    return _CELL.sub(lambda cell: _NAME.sub(_breakable, cell[0]), html)


def _breakable(name: re.Match[str]) -> str:
    parts = re.sub(r"(/|::|_(?=[a-z]))", r"\1<wbr>", name[1])
    return f"<code>{parts}</code>"


def content(source: str) -> str:
    """Return the Markdown of a page that docs/ does not have."""
    if source == "examples":
        lines = [f"- [{name}](examples/{name}): {_title(name)}" for name in EXAMPLES]
        return "\n".join(["# Examples", "", "One short program for each feature.", "", *lines])
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".ipynb"):
        return "\n\n".join([*map(_cell, json.loads(text)["cells"]), _download(source)])
    if source.endswith(".py"):
        return f"{_FOUND_LATE}# {source.removeprefix('examples/')}\n\n```python\n{text}```\n"
    return text


def _cell(cell: dict[str, Any]) -> str:
    """Return a cell of a notebook, with the text and the pictures that it shows."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
    pictures = ["".join(output.get("data", {}).get("text/html", ())) for output in cell["outputs"]]
    parts = [f"```python\n{source}\n```", f"```text\n{printed}```" if printed else "", *pictures]
    return "\n\n".join(filter(None, parts))


def _download(source: str) -> str:
    name = posixpath.basename(source)
    return f'<a href="{name}" download>This page as a notebook</a>'


def _title(name: str) -> str:
    """Return the first line of an example's docstring."""
    first = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()[0]
    return first.strip('"')
