"""Every block of README.md and docs/ runs, and every link between the pages leads somewhere."""

import re
from pathlib import Path

import pytest

from docs.pictures import draw
from tests.support import pages
from tests.support.pages import ROOT, read
from tests.support.stress.template import Template
from tests.support.versions import marked, one_program_keeps_the_order, reads_programs_of_jax

PAGES = pages.names()
OTHERS = ["CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"]
LATER = {"docs/jax.md": reads_programs_of_jax, "docs/recipes.md": one_program_keeps_the_order}
NOTEBOOKS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/notebooks/*.ipynb"))


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


def test_readme_names_the_two_commands_and_has_an_example() -> None:
    text = read("README.md")
    assert "make demo" in text
    assert "make test" in text
    assert pages.expected_outputs(text)[0] is not None


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
    text = "\n".join(f"`{detail}`" for detail in details_of_pictures())
    text = read("docs/architecture.md") + text.replace(", ", "`\n`")
    named = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|cc|h))`", text))
    assert len(named) > 50
    folders = ("", "plugin", "plugin/hostcall", "mlir/hostcall_mlir", "csrc")
    found = {name for name in named if any((ROOT / folder / name).exists() for folder in folders)}
    assert named - found == set()


def details_of_pictures() -> list[str]:
    bands = [band for bands in draw.PICTURES.values() for band in bands]
    return [detail for _, rows in bands for row in rows for _, detail in row]


@pytest.mark.parametrize("picture", draw.PICTURES)
def test_pictures_are_those_of_the_script(picture: str) -> None:
    assert read(f"docs/pictures/{picture}.svg") == draw.draw(picture)


def test_contents_of_a_page_are_complete() -> None:
    for page in (
        "docs/guide.md",
        "docs/parallel.md",
        "docs/distributed.md",
        "docs/sharp-bits.md",
        "docs/recipes.md",
        "docs/migration.md",
    ):
        text = read(page)
        titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert re.findall(r"^- \[(.+)\]\(#", text, re.MULTILINE) == titles, page
