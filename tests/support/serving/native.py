"""The client of workers in C++, as the module `_worker_client`. It knows no TensorFlow."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.errors import assert_says
from tests.support.native.modules import BUILD, load_file, module_file

module = load_file("_worker_client", module_file(BUILD, "tests/cpp/worker/_worker_client"))

STRING = 7
# As TensorFlow numbers dtypes.
NUMBERS = {np.dtype(name): number for name, number in [("f4", 1), ("f8", 2), ("i4", 3), ("u1", 4)]}
NUMBERS |= {np.dtype(name): number for name, number in [("i8", 9), ("?", 10), ("c16", 18)]}
NUMBERS |= {np.dtype(object): STRING, np.dtype(ml_dtypes.bfloat16): 14}


@dataclasses.dataclass
class Outcome:
    code: int
    message: str
    results: list[Any]

    def result(self) -> Any:
        """Return the first result of a call that went well."""
        assert (self.code, self.message) == (0, "")
        return self.results[0]

    def assert_fails(self, code: int, *texts: str) -> None:
        assert self.code == code, self.message
        assert_says(self.message, *texts)


class NativeClient:
    """A pool of workers as environment variables describe it; None is that of the process."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        self._client = module.Client() if variables is None else module.Client(dict(variables))

    def call(
        self,
        token: str,
        arrays: Sequence[Any],
        dtypes: Sequence[Any],
        op: str = "PyFunc",
        most_bytes: int = 1 << 40,
    ) -> Outcome:
        wanted = list(map(np.dtype, dtypes))
        numbers = [NUMBERS[dtype] for dtype in wanted]
        given = [_argument(np.asarray(array)) for array in arrays]
        code, said, results = self._client.call(op, token.encode(), given, numbers, most_bytes)
        made = [_array(one, dtype) for one, dtype in zip(results, wanted, strict=False)]
        return Outcome(code, said.decode(errors="replace"), made)

    def shapes(self, token: str, arrays: Sequence[Any], dtypes: Sequence[Any]) -> Outcome:
        given = [(NUMBERS[np.dtype(one.dtype)], [*one.shape], b"") for one in arrays]
        numbers = [NUMBERS[np.dtype(dtype)] for dtype in dtypes]
        code, said, shapes = self._client.shapes("PyFunc", token.encode(), given, numbers)
        return Outcome(code, said.decode(errors="replace"), shapes)


def _argument(array: Any) -> tuple[int, list[int], Any]:
    content = [*array.flat] if array.dtype == object else array.tobytes()
    return NUMBERS[array.dtype], [*array.shape], content


def _array(result: tuple[Sequence[int], bytes, list[bytes]], dtype: Any) -> Any:
    shape, content, strings = result
    if not dtype.hasobject:
        return np.frombuffer(content, dtype).reshape(shape)
    assert len(strings) == math.prod(shape)
    texts = np.empty(len(strings), object)
    texts[:] = strings
    return texts.reshape(shape)
