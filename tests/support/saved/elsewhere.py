"""What the programs of this package tell of themselves in a process of their own."""

from __future__ import annotations

import json
from typing import Any

from tests.support.stress.template import Template


def told(template: Template, call: str) -> Any:
    """What a call prints, such as `uses.write(path)`, in a process that imports hostcall."""
    module = call.partition(".")[0]
    script = f"import hostcall; from tests.support.saved import {module}; print({call})"
    ended = template.run_program(script)
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])
