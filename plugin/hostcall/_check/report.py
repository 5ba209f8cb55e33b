"""What `hostcall.check` returns and raises."""

from __future__ import annotations

import dataclasses

from hostcall._check.facts import Facts


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
        from hostcall._check import table  # what draws is loaded when somebody looks

        return table.text(self)


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
