"""The report of `hostcall.check`: findings as data, as a table, and as an error."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator

from hostcall import _report
from hostcall._report import Code, Table, folded
from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True)
class Finding:
    """A difference between a function and its declaration.

    Attributes:
      check: the name of the check that has found it.
      what: a description of the difference.
      cause: the likely cause.
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
    """A check, or a part of one, that was not made; `CheckReport` describes it."""

    check: str
    why: str
    partly: bool = False


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """An option that might be declared, too; `CheckReport` describes it."""

    check: str
    what: str
    line: str


@dataclasses.dataclass(frozen=True, repr=False)
class CheckReport(_report.Report):
    """The result of `hostcall.check`. `print` shows it as a table.

    Attributes:
      name: the function, and the file and line of its definition.
      findings: the differences from the declaration, a tuple of `Finding`s.
      passed: the names of the checks that were made and have found nothing, a tuple.
      not_checked: the checks, or parts of them, that were not made: a tuple of objects with the
        check's name (`check`), the reason (`why`), and whether the rest was made (`partly`).
      calls: the number of times that the checks have called the function.
      suggestions: options that might be declared, too: a tuple of objects with the name of the
        check (`check`), the benefit of the option (`what`), and the line to write (`line`).
      ok: whether nothing was found.

    Examples:
      >>> report = hostcall.check(np.cumsum, np.ones(3), result=lambda x: x)
      >>> report.ok, "dtypes" in report.passed
      (True, True)
    """

    name: str
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    calls: int
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def headline(self) -> str:
        """The number of findings and of checks, in one line."""
        failed = {finding.check for finding in self.findings}
        found = counted(len(self.findings), "finding") if self.findings else "no finding"
        return f"{found} of {counted(len(self.passed) + len(failed), 'check')}"

    def _parts(self) -> Iterator[str | Table]:
        return _parts(self)


class CheckError(AssertionError):
    """The error that `hostcall.check` raises for findings. Its text is the report.

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


def _parts(report: CheckReport) -> Iterator[str | Table]:
    yield Code(f"{report.name}: {report.headline}")
    if report.findings:
        columns = {
            "check": {"overflow": "fold", "min_width": 10},
            "what happened": folded(4),
            "likely cause": folded(3),
        }
        rows = [(finding.check, finding.what, finding.cause) for finding in report.findings]
        yield Table(columns, rows, "Findings", {"show_lines": True})
        yield "\nWrite:\n"
        for line in dict.fromkeys(finding.line for finding in report.findings):
            yield Code(textwrap.indent(line, "    "))
        yield ""
    for one in report.suggestions:
        yield f"Suggested: {one.line}: {one.what}."
    if report.passed:
        yield f"Passed: {', '.join(report.passed)}."
    reasons: dict[str, list[str]] = {}
    for left_out in report.not_checked:
        reasons.setdefault(left_out.why.removesuffix("."), []).append(left_out.check)
    for why, names in reasons.items():
        yield f"Not checked: {', '.join(names)}: {why}."
    yield f"The function was called {counted(report.calls, 'time')}."
