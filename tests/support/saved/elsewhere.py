"""Helpers that run the programs of this package in a process of their own."""

import json
from typing import Any

from tests.support.stress.template import Template


def told(template: Template, call: str, **variables: str) -> Any:
    """Return the result of a call, such as `uses.write(path)`, in a process with hostcall."""
    module = call.partition(".")[0]
    script = f"""
import json, hostcall
from tests.support.saved import {module}
found = {call}
print(found if isinstance(found, str) else json.dumps(found))
"""
    return printed(template, script, **variables)


def printed(template: Template, script: str, **variables: str) -> Any:
    """Run a script, and return the last line that it prints, read as JSON."""
    ended = template.run_program(script, **variables)
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])
