"""Every notebook of docs/notebooks runs, and its cells print what it shows."""

import nbformat
import pytest

from tests.support import notebooks
from tests.support.pages import ROOT


@pytest.mark.full_run("takes long, and its kernels take ports")
@pytest.mark.parametrize("name", notebooks.FILES)
def test_cells_run_and_print_what_the_notebook_shows(name: str) -> None:
    shown = [cell for cell in notebooks.read(name).cells if cell.cell_type == "code"]
    ran = [cell for cell in notebooks.run(name).cells if cell.cell_type == "code"]
    for number, (before, after) in enumerate(zip(shown, ran, strict=True), start=1):
        assert notebooks.printed(after) == notebooks.printed(before), f"cell {number} of {name}"


@pytest.mark.parametrize("name", notebooks.FILES)
def test_notebook_is_kept_as_the_script_writes_it(name: str) -> None:
    text = (notebooks.FOLDER / name).read_text(encoding="utf-8")
    notebook = notebooks.read(name)
    nbformat.validate(notebook)
    assert notebooks.as_text(notebooks.stored(notebook)) == text


def test_every_notebook_is_in_the_site() -> None:
    pages = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [name for name in notebooks.FILES if f"notebooks/{name[:-6]}.md" not in pages]
    assert missing == []
