"""What checks find, as data."""

from __future__ import annotations

import dataclasses

from hostcall_runtime._words import counted


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
