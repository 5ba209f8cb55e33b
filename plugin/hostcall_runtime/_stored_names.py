"""Private names that objects of a framework get when they are made; their classes lack them."""

from __future__ import annotations

import inspect

from hostcall_runtime._patching import Name


class StoredName(Name):
    """A name that a method of a class writes, or a local variable of a function.

    `attribute` ends with that method and the name: "Graph.__init__._functions".
    """

    def find(self) -> object:
        """The name itself.

        Raises:
          ImportError: there is no such module.
          AttributeError: there is no such method, or it does not use the name.
        """
        owner, _, name = self.attribute.rpartition(".")
        method = Name(self.module, owner, self.feature, self.without).find()
        code = inspect.unwrap(method).__code__  # type: ignore[arg-type]
        if name not in (*code.co_names, *code.co_varnames):
            raise AttributeError(name)
        return name
