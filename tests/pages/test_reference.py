"""The reference: every public name is on a page of it, with an example that runs."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.stress.template import Template
from tests.support.versions import marked, reads_programs_of_jax

PAGES = {
    "hostcall": "docs/reference/hostcall.md",
    "hostcall.jax": "docs/reference/hostcall-jax.md",
    "hostcall_mlir": "docs/reference/hostcall-mlir.md",
}

# Runs the files of a folder, each as a program of its own behind the imports of the page.
_PROGRAM = """
import os, pathlib, tempfile
def show(value):
    if value is not None:
        print(repr(value))
for file in sorted(pathlib.Path({folder!r}).glob("*.py")):
    print(file.stem)
    variables = {{"__name__": "__main__", "__show__": show}}
    with tempfile.TemporaryDirectory() as folder:
        exec({imports!r}, variables, variables)
        variables["directory"] = os.path.join(folder, "program")
        exec(compile(file.read_text(encoding="utf-8"), file, "exec"), variables)
"""


def docstring_of(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    documents_itself = inspect.isclass(value) or inspect.isroutine(value)
    return (inspect.getdoc(value) or "") if documents_itself else ""


def examples_as_program(docstring: str) -> tuple[str, list[str]]:
    """The examples of a docstring as a program that prints what they show, and what that is."""
    lines, wanted = [], []
    for example in doctest.DocTestParser().get_examples(docstring):
        source = example.source.strip()
        lines += [f"__show__((\n{source}\n))" if _is_expression(source) else source, pages.MARK]
        wanted.append(example.want)
    return "\n".join(lines), wanted


def _is_expression(source: str) -> bool:
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("module", marked(PAGES, {"hostcall.jax": reads_programs_of_jax}))
def test_examples_of_docstrings_print_what_they_show(
    fresh_python: Template, module: str, tmp_path: Path
) -> None:
    wanted = {}
    for name in importlib.import_module(module).__all__:
        program, outputs = examples_as_program(docstring_of(module, name))
        if outputs:
            (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
            wanted[name] = outputs
    imports = re.search(r"^```python\n(.*?)^```$", pages.read(PAGES[module]), re.M | re.S)
    assert imports is not None
    program = _PROGRAM.format(folder=str(tmp_path), imports=imports[1])
    ended = fresh_python.run_program(program)
    assert ended.status == 0, f"{ended.printed}{ended.said}"
    shown = ended.printed
    for name in sorted(wanted):
        assert shown.startswith(f"{name}\n")
        *printed, shown = shown.removeprefix(f"{name}\n").split(
            f"{pages.END}\n", maxsplit=len(wanted[name])
        )
        assert printed == wanted[name], name


@pytest.mark.parametrize("module", PAGES)
def test_every_public_name_is_in_the_reference_and_has_an_example(module: str) -> None:
    text = pages.read(PAGES[module])
    public = {*importlib.import_module(module).__all__}
    assert {*re.findall(rf"^::: {re.escape(module)}\.(\w+)$", text, re.MULTILINE)} == public
    for name in public:
        block = text[text.index(f"::: {module}.{name}\n") :].split("\n:::")[0]
        assert ">>>" in docstring_of(module, name) or f"{name}" in "".join(
            re.findall(r"^```python\n(.*?)^```$", block, re.MULTILINE | re.DOTALL)
        ), f"{module}.{name} has no example"


def test_commands_and_their_options_are_in_the_reference_with_examples() -> None:
    from hostcall_command import commands

    text = pages.read("docs/reference/command-line.md")
    for name, command in commands.commands.items():
        section = text[text.index(f"## `hostcall {name}") :].split("\n## ")[0]
        options = [max(p.opts, key=len) for p in command.params if p.param_type_name == "option"]
        assert [option for option in options if f"`{option}" not in section] == [], name
        assert f"$ hostcall {name}" in section, name


def test_page_on_exporting_has_each_argument_of_load() -> None:
    import hostcall_mlir

    text = pages.read("docs/exporting.md")
    named = {*inspect.signature(hostcall_mlir.load).parameters} - {"directory"}
    assert {name for name in named if f"| `{name}` |" in text} == named
