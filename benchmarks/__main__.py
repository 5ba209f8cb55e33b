"""`python -m benchmarks [QUESTION ...]`: asks the named questions, or all; writes JSON and tables.

Each question runs in its own process, so that none inherits the threads and caches of another. Each
figure is added to history.csv. The answer to `programs` renews its tables on the pages; a run of
all questions renews the pages whole, and the plots.
"""

import importlib
import os
import subprocess
import sys

from benchmarks import ON_GPU, QUESTIONS, history, page, report
from benchmarks.report import show, write


def ask(name: str) -> None:
    facts = history.facts()
    question = importlib.import_module(f"benchmarks.{name}")
    rows = question.main()
    show(question.TITLE, rows)
    write(name, question.TITLE, rows, facts)
    if "HOSTCALL_BENCHMARKS" not in os.environ:
        history.append(history.entries(name, rows, facts))
        if name == "programs":
            for one in page.PAGES:
                page.renew(one, report.DIRECTORY)


def run(*module: str) -> None:
    subprocess.run([sys.executable, "-m", *module], check=True)


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in (*QUESTIONS, *ON_GPU)]
    if unknown:
        sys.exit(f"There is no question {unknown[0]!r}; there are {', '.join(QUESTIONS)}.")
    if len(names) == 1:
        ask(names[0])
        return
    for name in names or QUESTIONS:
        run("benchmarks", name)
    if not names:
        run("benchmarks.plot")


if __name__ == "__main__":
    main(sys.argv[1:])
