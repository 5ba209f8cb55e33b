"""Functions on the workers of an MPI program, two processes under mpiexec."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT

PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
from tests.support import executor_functions as functions

if __name__ == "__main__":
    import mpi4py.futures
    import tensorflow as tf
    import hostcall

    x = tf.constant([1.0, 2.0, 3.0])
    with mpi4py.futures.MPIPoolExecutor() as pool:
        def on(function, result=lambda x: x, **how):
            return hostcall.callback(function, result=result, executor=pool, **how)

        place = on(functions.place, tf.TensorSpec([3], tf.float64))
        fails, lock = on(functions.fails), on(functions.returns_a_lock)
        for mode in (tf.function, lambda f: tf.function(f, jit_compile=True), lambda f: f):
            process, has_tensorflow, total = mode(lambda x: place(2.0 * x))(x).numpy()
            assert (process != os.getpid(), has_tensorflow, total) == (True, False, 12.0)
            try:
                mode(fails)(tf.constant(5.0))
            except tf.errors.InvalidArgumentError as error:
                assert hostcall.last_error(error).sensor == 5
            for function in (lock, on(lambda x: x)):
                try:
                    mode(function)(x)
                except tf.errors.OpError as error:
                    assert isinstance(hostcall.last_error(error), hostcall.ExecutorError)
                    assert "cannot send" in str(hostcall.last_error(error))
        print("all modes")
"""


def test_values_and_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(root=str(ROOT)))
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    assert mpiexec is not None
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py.futures", str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "all modes\n"
