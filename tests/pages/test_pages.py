"""Every block of README.md and docs/ runs, and every link between the pages leads somewhere.

And what the pages say of tests, recipes and versions holds.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import site_pages
from docs.pictures import draw, explained
from tests.support import notebooks, pages
from tests.support.pages import ROOT, read
from tests.support.stress.template import Template
from tests.support.versions import marked, reads_programs_of_jax

PAGES = pages.names()
OTHERS = ["CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "findings/README.md"]
LATER = {"docs/jax.md": reads_programs_of_jax}
NOTEBOOKS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/notebooks/*.ipynb"))
WITH_CONTENTS = ["guide", "parallel", "distributed", "sharp-bits", "recipes", "migration"]
RECIPES = re.split(r"^## ", read("docs/recipes.md"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("page", marked(PAGES, LATER))
def test_blocks_run_and_print_what_the_page_says(
    fresh_python: Template, page: str, tmp_path: Path
) -> None:
    text = read(page)
    # Not by the page's own name, under which a package of that name could not be imported.
    program = tmp_path / f"page_{Path(page).stem.replace('-', '_')}.py"
    code = pages.as_program(text)
    program.write_text(code, encoding="utf-8")
    ended = fresh_python.run_program(
        f"import os; os.chdir({str(tmp_path)!r}); {code}", str(program)
    )
    assert ended.status == 0, f"a block of {page} failed:\n{ended.printed}{ended.said}"
    printed = ended.printed.split(f"{pages.END}\n")
    for number, expected in enumerate(pages.expected_outputs(text)):
        if expected is not None:
            assert printed[number] == expected, f"block {number + 1} of {page}"


@pytest.mark.parametrize("page", PAGES + OTHERS + NOTEBOOKS)
def test_relative_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        if anchor:
            text = file.read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            anchors |= {*re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)}
            assert anchor in anchors, f"{page} links to {target}"


def test_files_that_architecture_and_its_pictures_name_exist() -> None:
    bands = [band for bands in draw.PICTURES.values() for band in bands]
    details = [detail for _, rows in bands for row in rows for _, detail in row]
    text = "\n".join(f"`{detail}`" for detail in details).replace(", ", "`\n`")
    text += read("docs/architecture.md")
    named = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|cc|h))`", text))
    assert len(named) > 50
    folders = ("", "plugin", "plugin/hostcall", "mlir/hostcall_mlir", "csrc")
    found = {name for name in named if any((ROOT / folder / name).exists() for folder in folders)}
    assert named - found == set()


@pytest.mark.parametrize("picture", draw.PICTURES)
def test_pictures_are_those_of_the_script(picture: str) -> None:
    assert read(f"docs/pictures/{picture}.svg") == draw.draw(picture)


def test_the_readme_shows_what_explain_draws() -> None:
    assert "docs/pictures/explained.svg" in read("README.md")
    assert explained.FILE.read_text(encoding="utf-8") == explained.draw()


def test_pages_of_the_site_show_what_notebooks_show() -> None:
    shown = [cell for cell in notebooks.read("first-steps.ipynb").cells if "outputs" in cell]
    (picture,) = (picture for cell in shown for picture in notebooks.pictures(cell))
    assert "<svg" in picture
    assert picture in site_pages.content("docs/notebooks/first-steps.ipynb")


@pytest.mark.parametrize("page", WITH_CONTENTS)
def test_contents_of_a_page_are_complete(page: str) -> None:
    text = read(f"docs/{page}.md")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert re.findall(r"^- \[(.+)\]\(#", text, re.MULTILINE) == titles


# docs/recipes.md: the page is run as one program, in which a recipe could use what an earlier one
# defines; but each stands alone, and shows that it is one compiled program.

RUFF = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "-"]
SHOWN = re.compile(
    r"hostcall\.explain\(.*\)\.headline\)\n```\n\n```text\n(?:.*\n)*?"
    r"one compiled program with \d script ops? in it\n```"
)


def test_names_are_defined_in_the_recipe_that_uses_them() -> None:
    for recipe in RECIPES:
        blocks = re.findall(r"^```python\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
        said = subprocess.run(RUFF, input="".join(blocks), capture_output=True, text=True).stdout
        assert said == "All checks passed!\n", recipe.splitlines()[0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0])
def test_recipe_shows_that_it_is_one_program(recipe: str) -> None:
    programs = recipe.count("```python\n")
    assert programs > 0
    assert len(SHOWN.findall(recipe)) == programs


def test_lines_that_the_page_of_logs_quotes_are_those_of_the_log() -> None:
    _, section, *_ = re.split(r"^## ", read("docs/logging.md"), flags=re.MULTILINE)
    lines = re.findall(r"^\| ([^|]*`[^|]*) \|", section, re.MULTILINE)
    quoted = [words for line in lines for words in re.findall(r"`([^`]+)`", line)]
    code = "".join(path.read_text("utf-8") for path in ROOT.glob("plugin/hostcall*/**/*.py"))
    messages = re.sub(r'"\n\s*f?"', "", code)
    assert len(lines) == 6
    assert [words for words in quoted if words not in messages] == []


# docs/versions.md: which tests older versions of TensorFlow leave out, and why.

MARK = re.compile(r'mark\.tensorflow\(\s*"([\d.]+)",\s*"([^"]+)",?\s*\)')
MARKS = sorted({found for f in ROOT.glob("tests/**/*.py") for found in MARK.findall(f.read_text())})


@pytest.mark.parametrize(("since", "reason"), MARKS)
def test_the_page_says_what_older_versions_cannot_do(since: str, reason: str) -> None:
    rows = re.findall(rf"^\| {re.escape(since)} \|.*$", read("docs/versions.md"), re.MULTILINE)
    assert any(reason in row for row in rows)


def test_tests_that_the_page_of_behaviours_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+)::(test_\w+)`", read("docs/jax-behaviours.md")))
    assert len(named) > 100
    there = {
        (file, node.name)
        for file in {file for file, _ in named}
        for node in ast.parse(read(f"tests/{file}.py")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert named - there == set()


@pytest.mark.full_run("takes long, and its kernels take ports")
@pytest.mark.parametrize("name", notebooks.FILES)
def test_cells_run_and_print_what_the_notebook_shows(name: str) -> None:
    shown = [cell for cell in notebooks.read(name).cells if cell.cell_type == "code"]
    ran = [cell for cell in notebooks.run(name).cells if cell.cell_type == "code"]
    for number, (before, after) in enumerate(zip(shown, ran, strict=True), start=1):
        assert notebooks.printed(after) == notebooks.printed(before), f"cell {number} of {name}"


def test_every_notebook_is_in_the_site() -> None:
    pages = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [name for name in notebooks.FILES if f"notebooks/{name[:-6]}.md" not in pages]
    assert missing == []
