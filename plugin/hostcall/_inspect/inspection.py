"""What `hostcall.inspect` returns: the facts, and how they are shown."""

from __future__ import annotations

import dataclasses

from hostcall._inspect.facts import Facts


@dataclasses.dataclass(frozen=True)
class Inspection(Facts):
    """The Python functions that a file names. `print` shows them as a table.

    Attributes:
      path: of the file or directory.
      format: "SavedModel", "exported program", "Keras model", "GraphDef" or "MetaGraphDef".
      functions: each once.
      notes: what else one has to know.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.sort, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.program = program
      >>> tf.saved_model.save(module, directory)
      >>> hostcall.inspect(directory).headline
      'SavedModel with 1 Python function'
    """

    def __str__(self) -> str:
        from hostcall._inspect import table  # what draws is loaded when somebody looks

        return table.text(self)
