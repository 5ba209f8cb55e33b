"""Undoes one fix after another in a copy of the sources; the tests that guard it must fail.

    python -m tests.mutations [--list] [NAME ...]

`mutations.toml` says, for each fix, what is done to which function, and which tests fail then. A
mutation that no test notices, and one whose function is not there any more, is an error. First all
the tests run once on the sources as they are, those of a file together.
"""
# ruff: noqa: T201 - it prints its report

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable

from tests.mutations.mutation import ROOT, Mutation, load
from tests.support.native.trees import Tree

TREE = ROOT / "build" / "mutations"
COPY = Tree(TREE)
# The seconds that tests may take, some of which hang when the fix is undone; and all of a file.
LIMIT, OF_FILE = 240.0, 1800.0


def copy_sources() -> None:
    """Copy the sources and the tests as they are, and the modules as they are installed."""
    shutil.rmtree(TREE / "tests", ignore_errors=True)
    files = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    present = dict.fromkeys(files.splitlines())
    for left in {
        *TREE.glob("plugin/**/*.py"),
        *TREE.glob("mlir/**/*.py"),
        *TREE.glob("csrc/**/*.*"),
    }:
        if str(left.relative_to(TREE)) not in present:
            left.unlink()  # of an earlier run
    for file in present:
        target = TREE / file
        changed = not target.exists() or target.read_bytes() != (ROOT / file).read_bytes()
        if changed and (ROOT / file).is_file():  # the others keep their times, for ninja
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, target)
    COPY.prepare()
    COPY.take_installed()


def run(tests: list[str], native: bool, limit: float = LIMIT) -> int | str:
    """Return pytest's exit status, or what ended it."""
    environment = COPY.environment(TREE)
    originals = sorted((ROOT / "build").glob("cp*"))
    environment["HOSTCALL_BUILD"] = str(COPY.out if native else originals[-1])
    # In a session of its own, so that what it has started ends with it.
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=TREE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "hung"
    if process.returncode not in (0, 1) and process.returncode > 0:
        print(said[-3000:])
    return process.returncode if process.returncode >= 0 else f"signal {-process.returncode}"


def together(tests: Iterable[str]) -> list[list[str]]:
    """Return the arguments of few runs that hold all tests: for a file, one by names, one by -k."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    chosen: defaultdict[str, list[str]] = defaultdict(list)
    others = []
    for test in sorted(tests):
        match shlex.split(test):
            case [name]:
                named[name.partition("::")[0]].append(name)
            case [file, "-k", words]:
                chosen[file].append(f"({words})")
            case arguments:
                others.append(arguments)
    by_words = [[file, "-k", " or ".join(words)] for file, words in chosen.items()]
    return [*named.values(), *by_words, *others]


def check(mutation: Mutation) -> bool:
    """Apply a mutation, run its tests, and return whether each of them notices it."""
    text = (ROOT / mutation.file).read_text()
    (TREE / mutation.file).write_text(mutation.applied(text))
    try:
        if mutation.native:
            COPY.build("-DCMAKE_CXX_FLAGS=-w")  # it leaves variables and functions unused
        outcomes = {test: run(shlex.split(test), mutation.native) for test in mutation.tests}
    finally:
        shutil.copyfile(ROOT / mutation.file, TREE / mutation.file)
    noticed = all(outcome == 1 or isinstance(outcome, str) for outcome in outcomes.values())
    print(f"{'noticed' if noticed else 'SURVIVED':9} {mutation.name}", flush=True)
    for test, outcome in outcomes.items():
        print(f"    {outcome!s:9} {test}", flush=True)
    return noticed


def main() -> int:
    """Run the mutations, those without C++ first, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("names", nargs="*", help="mutations; all of them if none is named")
    arguments = parser.parse_args()
    mutations = sorted(load(arguments.names), key=lambda mutation: mutation.native)
    if arguments.list:
        print(*(mutation.name for mutation in mutations), sep="\n")
        return 0
    copy_sources()
    for tests in together({test for mutation in mutations for test in mutation.tests}):
        if (outcome := run(tests, native=False, limit=OF_FILE)) != 0:
            print(f"{shlex.join(tests)} does not pass on the sources as they are: {outcome}")
            return 1
    survived = [mutation.name for mutation in mutations if not check(mutation)]
    print(f"{len(mutations)} mutations, {len(survived)} survived {survived or ''}")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
