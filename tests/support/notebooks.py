"""Runs the notebooks of docs/notebooks, and keeps in them what their cells print.

A notebook has the text and the pictures that each cell shows, so that it can be read without
running it, and no numbers of executions or times, so that it changes only where these do.
`python -m tests.support.notebooks` runs all of them, and writes what they print.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from tests.support.pages import ROOT

FOLDER = ROOT / "docs" / "notebooks"
FILES = sorted(path.name for path in FOLDER.glob("*.ipynb"))

# IPython gives the file of a cell a name that depends on the process.
_CELL_FILE = re.compile(r"(\S*/ipykernel_\d+/)?\b\d+\.py")
_PACKAGES = re.compile(r"/\S*/site-packages/")

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(name: str) -> Any:
    return nbformat.read(FOLDER / name, as_version=4)


def run(name: str) -> Any:
    """The notebook after all its cells have run, in a folder and with settings of its own."""
    notebook = read(name)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"IPYTHONDIR": folder, "JUPYTER_CONFIG_DIR": folder, "TF_CPP_MIN_LOG_LEVEL": "2"}
        client = nbclient.NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],  # it warns that its ports are not encrypted
        )
        client.execute(env={**os.environ, **settings})
    return notebook


def printed(cell: Any) -> str:
    """Return the text that a cell of code prints and shows; a picture has none."""
    return "".join(_text(output) for output in cell.outputs)


def pictures(cell: Any) -> list[str]:
    """Return what a cell of code shows as HTML; each cell is a file of the same name."""
    shown = [output.data for output in cell.outputs if output.output_type != "stream"]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    return [_PACKAGES.sub("", _CELL_FILE.sub("cell.py", page)) for page in pages]


def stored(notebook: Any) -> Any:
    """The notebook as it is kept: with what its cells print, and nothing that only one run has."""
    kept = nbformat.v4.new_notebook(metadata=_METADATA)
    for number, cell in enumerate(notebook.cells):
        made = nbformat.v4.new_markdown_cell(cell.source)
        if cell.cell_type == "code":
            text = printed(cell)
            outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
            outputs += [
                nbformat.v4.new_output("display_data", data={"text/html": picture})
                for picture in pictures(cell)
            ]
            made = nbformat.v4.new_code_cell(cell.source, outputs=outputs)
        made.id = f"cell-{number}"
        kept.cells.append(made)
    return kept


def as_text(notebook: Any) -> str:
    return nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n"


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    if output.output_type == "execute_result" and set(output.data) == {"text/plain"}:
        return f"{output.data['text/plain']}\n"
    return ""


def main() -> None:
    for name in FILES:
        Path(FOLDER, name).write_text(as_text(stored(run(name))), encoding="utf-8")


if __name__ == "__main__":
    main()
