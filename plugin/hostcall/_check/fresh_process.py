"""A Python process that has imported nothing yet, with the same `sys.path`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

_SECONDS = 120

_SCRIPT = """
import base64, hashlib, importlib, json, pickle, sys

def code_of(found):
    found = getattr(found, "__hostcall_function__", found)
    found = getattr(found, "__func__", found)
    code = getattr(found, "__code__", None)
    if code is None:
        return "no code" if callable(found) else "no function"
    text = repr((code.co_code, code.co_names, code.co_varnames))
    return hashlib.sha256(text.encode()).hexdigest()

def walk(place, namespace, depth):
    for name, found in [*vars(namespace).items()]:
        if isinstance(found, type) and depth:
            walk(place + name + ".", found, depth - 1)
        else:
            answer[place + name] = code_of(found)

asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
answer = {}
try:
    if "pickle" in asked:
        pickle.loads(base64.b64decode(asked["pickle"]))
    else:
        module = importlib.import_module(asked["module"])
        walk("", module, 2)
        found = module
        for part in asked["name"].split("."):
            found = getattr(found, part)
        answer[asked["name"]] = code_of(found)
except BaseException as error:
    answer["error: " + asked.get("name", "")] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(answer))
"""

# What a module holds in a fresh process. To import it may take seconds, and tests check many of its
# functions.
_known: dict[tuple[object, ...], dict[str, str]] = {}


class FreshProcessError(Exception):
    """A fresh process cannot do it, for the reason in the text."""


def unpickle(packed: bytes) -> None:
    """Has a fresh process read a pickle.

    Raises:
      FreshProcessError: when it cannot.
    """
    answer = _ask(pickle=base64.b64encode(packed).decode())
    if error := answer.get("error: "):
        raise FreshProcessError(error)


def code_at(module: str, name: str) -> str:
    """The code that a fresh process finds under a name in a module, as `code_of` tells it.

    Raises:
      FreshProcessError: when it finds nothing.
      TimeoutError: when the import takes too long to tell.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    version = os.stat(file).st_mtime_ns if file and os.path.exists(file) else None
    key = (module, version, *sys.path)
    if name not in _known.get(key, {}):
        answer = _ask(module=module, name=name)
        if error := answer.get(f"error: {name}"):
            raise FreshProcessError(error)
        _known[key] = answer
    return _known[key][name]


def code_of(function: Any) -> str:
    """What tells the code of a function from that of another one."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return "no code" if callable(function) else "no function"
    text = repr((code.co_code, code.co_names, code.co_varnames))
    return hashlib.sha256(text.encode()).hexdigest()


def _ask(**asked: str) -> dict[str, str]:
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
        raise TimeoutError(f"a fresh process takes more than {_SECONDS} seconds") from None
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        raise FreshProcessError(f"the process ends with status {ended.returncode}")
    answer: dict[str, str] = json.loads(lines[-1])
    return answer
