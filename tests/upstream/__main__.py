"""Runs TensorFlow's and JAX's own tests without hostcall and with it, and tells what differs.

    python -m tests.upstream --tensorflow DIR [--jax DIR] [--only TEXT]
    python -m tests.upstream --compiled --tensorflow DIR [--keras DIR] [--only TEXT]

DIR is a source tree of the version that is installed. With --compiled, everything is; see
`compiled.py`. Without, hostcall is only imported: nothing is compiled that the tests do not
compile. A test that comes out in another way with hostcall is a difference, whether it passes or
not, unless one of three runs without hostcall ends that way, too.
Those of `imported_differences.toml` have to differ. JAX's tests of callbacks are run once more with
its callbacks made by hostcall.jax.call; there, those of `called_differences.toml` have to differ.
"""
# ruff: noqa: T201 - it prints its report

import argparse
import collections
import os
import re
import sys
import textwrap
from importlib import metadata
from pathlib import Path

from tests.upstream.compiled import SECONDS_A_FILE, compare_all
from tests.upstream.running import WHOLE_FILE, Outcome, in_turn, known_of, run
from tests.upstream.suites import BY_CALLS, Suite, suites

_RUNS_OF_SUSPECTS = 2
_COMES_OUT_THE_SAME = "  DIFFERS NO MORE: {}\n    take it out of the list of known differences"

# Where a source tree tells its version, how, and which packages of that version may be installed.
_VERSIONS = {
    "tensorflow": (
        "tensorflow/tf_version.bzl",
        r'^TF_VERSION = "(.*)"',
        ("tensorflow-cpu", "tensorflow"),
    ),
    "jax": ("jax/version.py", r'^_version = "(.*)"', ("jax",)),
    "keras": ("keras/src/version.py", r'^__version__ = "(.*)"', ("keras",)),
}


def main(arguments: list[str] | None = None) -> int:
    parsed, sources = _parse(arguments)
    if parsed.compiled:
        return compare_all(sources, parsed.only, parsed.jobs, parsed.seconds)
    chosen = suites(list(sources), parsed.only)
    failed = 0
    for suite, (summary, differences) in in_turn(compare, chosen, sources, parsed.jobs):
        print(f"{suite.title}: {summary}", *differences, sep="\n", flush=True)
        failed += bool(differences)
    if not chosen:
        print(f"no test file has {parsed.only!r} in its title")
    print(f"{failed} of {len(chosen)} differ" if failed else f"all {len(chosen)} come out the same")
    return int(bool(failed) or not chosen)


def _parse(arguments: list[str] | None) -> tuple[argparse.Namespace, dict[str, str]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for framework in _VERSIONS:
        parser.add_argument(f"--{framework}", metavar="DIR", help=f"a source tree of {framework}")
    parser.add_argument("--only", default="", help="those with this text in their title")
    parser.add_argument("--compiled", action="store_true", help="compile all that is run")
    parser.add_argument("--jobs", type=int, help="how many files are run at a time")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS_A_FILE,
        help="with --compiled: after how long no other test of a file begins",
    )  # fmt: skip
    parsed = parser.parse_args(arguments)
    sources = {name: os.path.abspath(path) for name in _VERSIONS if (path := getattr(parsed, name))}
    if not sources:
        parser.error("at least one source tree is needed: --tensorflow DIR or --jax DIR")
    for framework, source in sources.items():
        if problem := _other_version(framework, source):
            parser.error(problem)
    return parsed, sources


def _other_version(framework: str, source: str) -> str:
    """Return how a source tree differs from the installed version, as a text; "" if it does not."""
    file, pattern, packages = _VERSIONS[framework]
    try:
        found = re.search(pattern, (Path(source) / file).read_text(), re.MULTILINE)
    except OSError as error:
        return f"{source} is not a source tree of {framework}: {error}"
    if found is None:
        return f"{file} in {source} does not tell the version"
    installed = {p.version for name in packages for p in metadata.distributions(name=name)}
    if found[1] not in installed:
        return f"{source} has {framework} {found[1]}, and installed is {', '.join(installed)}"
    return ""


def compare(suite: Suite, source: str) -> tuple[str, list[str]]:
    """Runs a file in both ways.

    Returns:
      A line on what the tests came to, and a text for each that comes out in another way and is
      no known difference, or is one and comes out the same.
    """
    known = known_of("called" if suite.mode == BY_CALLS else "imported", suite)
    stock, ours = run(suite, source, hostcall=False), run(suite, source, hostcall=True)
    if WHOLE_FILE in stock:  # both ways may be the same, and say nothing
        return "cannot be run", [_describe(WHOLE_FILE, {stock[WHOLE_FILE]}, ours.get(WHOLE_FILE))]
    suspects = [test for test in {**stock, **ours} if stock.get(test) != ours.get(test)]
    seen_in_stock = collections.defaultdict(set)
    for test in suspects:
        seen_in_stock[test].add(stock.get(test))
    for _ in range(_RUNS_OF_SUSPECTS if suspects else 0):
        for test, outcome in run(suite, source, hostcall=False, chosen=suspects).items():
            seen_in_stock[test].add(outcome)
    differences = [
        _describe(test, seen_in_stock[test], ours.get(test))
        for test in suspects
        if ours.get(test) not in seen_in_stock[test] and test not in known
    ]
    listed = known & ours.keys()
    differences += [_COMES_OUT_THE_SAME.format(test) for test in listed.difference(suspects)]
    counts = collections.Counter(outcome.kind for outcome in ours.values())
    summary = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    if count := len(listed.intersection(suspects)):
        summary += f", {count} of them known to differ"
    return summary, differences


def _describe(test: str, stock: set[Outcome | None], ours: Outcome | None) -> str:
    without = " or ".join(sorted(outcome.kind if outcome else "not there" for outcome in stock))
    with_it = ours.kind if ours else "not there"
    detail = textwrap.indent(ours.detail if ours else "", "      ")
    return f"  DIFFERS: {test}\n    without hostcall: {without}\n    with it: {with_it}\n{detail}"


if __name__ == "__main__":
    sys.exit(main())
