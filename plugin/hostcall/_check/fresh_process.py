"""A Python process that has imported nothing yet, with the same `sys.path`."""

from __future__ import annotations

import json
import subprocess
import sys

_SECONDS = 120

_SCRIPT = """
import base64, hashlib, importlib, json, pickle, sys
asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
answer = {}
try:
    if "pickle" in asked:
        found = pickle.loads(base64.b64decode(asked["pickle"]))
    else:
        found = importlib.import_module(asked["module"])
        for part in asked["name"].split("."):
            found = getattr(found, part)
    found = getattr(found, "__hostcall_function__", found)
    answer["callable"] = callable(found)
    code = getattr(found, "__code__", None)
    answer["code"] = code and [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
except BaseException as error:
    answer["error"] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(answer))
"""


def ask(**asked: str) -> dict[str, object]:
    """What a fresh process makes of a pickle, or of a module and a name in it.

    Returns:
      "error" with a text, or whether what was found is "callable", and its "code" where it has any.
    """
    question = json.dumps({"path": sys.path, **asked})
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            input=question,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"TimeoutError: the import takes more than {_SECONDS} seconds"}
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        return {"error": f"the process ends with status {ended.returncode}"}
    answer: dict[str, object] = json.loads(lines[-1])
    return answer


def code_of(function: object) -> list[str] | None:
    """What tells the code of a function from that of another one."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    return [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
