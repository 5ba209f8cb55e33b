"""What is raised where something cannot be recorded or replayed."""

from __future__ import annotations


class RecordingError(RuntimeError):
    """A recording that cannot be written or read; the text says why, and what to do about it.

    Examples:
      >>> try:
      ...     with hostcall.replay("nowhere"):
      ...         pass
      ... except hostcall.RecordingError as error:
      ...     print(str(error).split(".")[0])
      hostcall: there is no recording 'nowhere'
    """


class ReplayError(RecordingError):
    """A program that is replayed does something else than was recorded.

    The text names the callback, the call and the first difference. `hostcall.replay` raises it at
    its end; what the program itself raises is an error of the framework's with the same text.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/doubles.hostcall"
      >>> double = hostcall.callback(lambda x: 2 * x, result=lambda x: x)
      >>> with hostcall.record(file):
      ...     _ = double(1.0)
      >>> try:
      ...     with hostcall.replay(file):
      ...         _ = double(3.0)
      ... except hostcall.ReplayError as error:
      ...     print("recorded 1.0, got 3.0" in str(error))
      True
    """


class RecordedError(RuntimeError):
    """Raised in a replay for an exception of a class that there is not in this process.

    The text is the exception's, after the name of its class.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/run.hostcall"
      >>> def read(x):
      ...     class SensorError(Exception):
      ...         pass
      ...     raise SensorError("no such sensor")
      >>> def run(block):
      ...     with block:
      ...         try:
      ...             tf.numpy_function(read, [1.0], tf.float32)
      ...         except tf.errors.OpError as error:
      ...             return hostcall.last_error(error)
      >>> run(hostcall.record(file))
      SensorError('no such sensor')
      >>> type(run(hostcall.replay(file))).__name__
      'RecordedError'
    """
