"""Each faulty callback gets the one finding that it deserves, with the line to write."""

from __future__ import annotations

import pytest

import hostcall
from hostcall._check.checking import CHECKS
from tests.support.check.faulty import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_the_one_finding(name: str) -> None:
    fault = FAULTS[name]
    with pytest.raises(hostcall.CheckError) as caught:
        hostcall.check(fault.make(), *fault.args, **fault.options)
    (finding,) = caught.value.report.findings
    assert finding.check == fault.check
    assert fault.what in finding.what
    assert finding.line == fault.line
    assert finding.cause


def test_each_check_finds_a_fault() -> None:
    # Names are looked for in modules that the tests of it write; JAX is in tests/jax.
    found = {fault.check for fault in FAULTS.values()} | {"name", "jax"}
    assert found == {check.name for check in CHECKS}
    assert len(FAULTS) >= 20
