"""What the programs of this package tell of themselves in a process of their own."""

from __future__ import annotations

import json
from typing import Any

from tests.support.stress.template import Template


def told(template: Template, call: str, **variables: str) -> Any:
    """What a call returns, such as `uses.write(path)`, in a process that imports hostcall."""
    module = call.partition(".")[0]
    script = f"""
import json, hostcall
from tests.support.saved import {module}
found = {call}
print(found if isinstance(found, str) else json.dumps(found))
"""
    return printed(template, script, **variables)


def printed(template: Template, script: str, **variables: str) -> Any:
    """What the last line says that a script prints."""
    ended = template.run_program(script, **variables)
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])
