"""The report of `hostcall.check`: findings as data, as a table, and as an error."""

from __future__ import annotations

import dataclasses
import io
import textwrap
from typing import Any

from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is not as declared.

    Attributes:
      check: the name of the check that has found it.
      what: what happened.
      cause: what is likely behind it.
      line: the line to write.

    Examples:
      >>> report = hostcall.check(
      ...     np.cumsum, np.ones([3, 2]), result=lambda x: x, raise_errors=False
      ... )
      >>> [(finding.check, finding.line) for finding in report.findings]
      [('shapes', 'result=lambda a: tf.TensorSpec([a.shape[0] * a.shape[1]], tf.float64)')]
    """

    check: str
    what: str
    cause: str
    line: str


@dataclasses.dataclass(frozen=True)
class NotChecked:
    """Something that a check did not look at.

    Attributes:
      check: the name of the check.
      why: the reason.
      partly: whether the check was made, but for this.
    """

    check: str
    why: str
    partly: bool = False


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """Something that might be declared, too.

    Attributes:
      check: the name of the check that has found it.
      what: what it is good for.
      line: the line to write.
    """

    check: str
    what: str
    line: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """What all checks have found; see `CheckReport`."""

    name: str
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    calls: int
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def headline(self) -> str:
        """The facts in one line."""
        failed = {finding.check for finding in self.findings}
        found = counted(len(self.findings), "finding") if self.findings else "no finding"
        return f"{found} of {counted(len(self.passed) + len(failed), 'check')}"


_WIDTH = 110


def text(report: Facts) -> str:
    """The table as plain text, and below it what has passed and what was not checked."""
    from rich.console import Console
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, legacy_windows=False)
    console.print(Text(f"{report.name}: {report.headline}", style="bold"), soft_wrap=True)
    if report.findings:
        console.print(_findings(report))
        console.print(Text("\nWrite:\n"))
        for line in dict.fromkeys(finding.line for finding in report.findings):
            console.print(Text(textwrap.indent(line, "    ")), soft_wrap=True)
        console.print()
    for one in report.suggestions:
        console.print(Text(f"Suggested: {one.line}: {one.what}."))
    if report.passed:
        console.print(Text(f"Passed: {', '.join(report.passed)}."))
    for why, names in _reasons(report).items():
        console.print(Text(f"Not checked: {', '.join(names)}: {why}."))
    console.print(Text(f"The function was called {counted(report.calls, 'time')}."))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _reasons(report: Facts) -> dict[str, list[str]]:
    """The checks that were not made for a reason, by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in report.not_checked:
        reasons.setdefault(one.why.removesuffix("."), []).append(one.check)
    return reasons


def _findings(report: Facts) -> Any:
    from rich.table import Table
    from rich.text import Text

    rows = Table(title="Findings", title_justify="left", show_lines=True)
    rows.add_column("check", overflow="fold", min_width=10)
    rows.add_column("what happened", overflow="fold", ratio=4)
    rows.add_column("likely cause", overflow="fold", ratio=3)
    for finding in report.findings:
        rows.add_row(Text(finding.check), Text(finding.what), Text(finding.cause))
    return rows


@dataclasses.dataclass(frozen=True)
class CheckReport(Facts):
    """What `hostcall.check` has found. `print` shows it as a table.

    Attributes:
      name: the function, and the file and line of its definition.
      findings: what is not as declared, a tuple of `Finding`s.
      passed: the names of the checks that were made and have found nothing, a tuple.
      not_checked: what was not looked at: a tuple of objects with the name of the check (`check`),
        the reason (`why`), and whether the check was made but for this (`partly`).
      calls: how often the checks have called the function.
      suggestions: what might be declared, too: a tuple of objects with the name of the check
        (`check`), what it is good for (`what`), and the line to write (`line`).
      ok: whether nothing was found.

    Examples:
      >>> report = hostcall.check(np.cumsum, np.ones(3), result=lambda x: x)
      >>> report.ok, "dtypes" in report.passed
      (True, True)
    """

    def __str__(self) -> str:
        return text(self)


class CheckError(AssertionError):
    """What `hostcall.check` raises when it has found something. Its text is that of the report.

    Attributes:
      report: the `CheckReport`.

    Examples:
      >>> with pytest.raises(hostcall.CheckError) as caught:
      ...     hostcall.check(np.cumsum, np.ones(3), result=tf.TensorSpec([3], tf.float32))
      >>> [finding.check for finding in caught.value.report.findings]
      ['dtypes']
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        return str(self.report)
