"""What `hostcall.explain` returns: the facts, and how they are shown."""

from __future__ import annotations

import dataclasses

from hostcall._explain.facts import Facts


@dataclasses.dataclass(frozen=True)
class Explanation(Facts):
    """How a function runs. `print` shows it as a table, a notebook as a picture.

    Attributes:
      name: of the function.
      functions: the function itself and, after it, those that it calls and that call Python or are
        compiled. Each stands once, however often it is called.
      script_ops: all that can be reached.
      notes: what else one has to know.
      risks: the ops that XLA may get wrong, in functions that stock TensorFlow compiles.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> hostcall.explain(program, tf.TensorSpec([3], tf.float32)).headline
      'one compiled program with 1 script op in it'
    """

    # What draws is loaded when somebody looks: rich alone takes a tenth of a second.

    def to_html(self) -> str:
        """A page that draws each function as a graph of clusters and host ops."""
        from hostcall._explain import page

        return page.page(self)

    def _repr_html_(self) -> str:
        from hostcall._explain import page

        return page.fragment(self)

    def __str__(self) -> str:
        from hostcall._explain import table

        return table.text(self)
