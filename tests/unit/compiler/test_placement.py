"""hostcall._compiler.clusters.placement: which parts of a function run on its device."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import kernel_hook
from hostcall._tf import concrete_functions
from tests.support.helpers import jitted
from tests.support.tpu import compile_for_tpus

TASK = "/job:worker/replica:0/task:3"
CPU, DEVICE = f"{TASK}/device:CPU:0", f"{TASK}/device:TPU:1"
X = tf.TensorSpec([4], tf.float32)


@pytest.fixture(autouse=True)
def tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA compiles for TPUs, whose programs cannot call the host."""
    compile_for_tpus(monkeypatch)


def rewritten(program: Any, device: str = DEVICE) -> Any:
    return rewritten_for(jitted(program).get_concrete_function(X), device)


def rewritten_for(concrete: Any, device: str) -> Any:
    library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
    name = concrete.function_def.signature.name
    return kernel_hook.rewrite_for_kernel(library.SerializeToString(), name, device, True)


def functions_of(new: Any) -> Any:
    assert new.partitioned
    return tf.compat.v1.GraphDef.FromString(b"").library.FromString(new.library).function


def devices(program: Any, device: str = DEVICE) -> dict[str, set[str]]:
    """Return the devices of the nodes of each op, with clusters as "cluster"."""
    functions = functions_of(rewritten(program, device))
    compiled = {f.signature.name for f in functions if "_XlaMustCompile" in f.attr}
    found: dict[str, set[str]] = {}
    for function in functions:
        if function.signature.name not in compiled:
            for node in function.node_def:
                calls = {attr.func.name for attr in node.attr.values()} & compiled
                found.setdefault("cluster" if calls else node.op, set()).add(node.device)
    return found


def sort(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), x.shape)


def test_clusters_are_on_the_device_and_calls_beside_it() -> None:
    def program(x: Any) -> Any:
        with tf.device("/device:CPU:1"):  # which says nothing
            return sort(tf.sin(x)) + 1.0

    found = devices(program)
    assert (found["PyFunc"], found["cluster"]) == ({CPU}, {DEVICE})


def test_what_the_host_alone_uses_stays_there() -> None:
    found = devices(lambda x: tf.numpy_function(np.add, [tf.sin(x), np.float32(3.0)], x.dtype))
    assert found["Const"] == {CPU}


@pytest.mark.parametrize("device", [CPU, DEVICE])
def test_programs_for_the_cpu_find_places_by_a_kernel_of_ours(device: str) -> None:
    def program(x: Any) -> Any:
        return sort(x), tf.reduce_sum(tf.where(x > 0.0))

    library = tf.compat.v1.GraphDef().library.FromString(rewritten(program, device).library)
    (node,) = (n for f in library.function for n in f.node_def if n.op == "Where")
    assert node.attr["_kernel"].s == (b"hostcall" if device == CPU else b"")


def test_variables_are_read_where_they_are() -> None:
    with tf.device(CPU.replace("worker", "localhost").replace("task:3", "task:0")):
        variable = tf.Variable([1.0, 2.0, 3.0, 4.0])
    found = devices(lambda x: sort(variable) + tf.sin(x))
    assert found.get("ReadVariableOp", {""}) == {""}


def test_programs_that_cannot_call_the_host_are_partitioned() -> None:
    assert rewritten(sort).partitioned
    assert not rewritten(sort, CPU).partitioned


def test_a_custom_call_for_such_a_device_is_refused() -> None:
    with (
        hostcall.scope(route="custom_call"),
        pytest.raises(hostcall.LoweringError, match="TPU:1 cannot call the host"),
    ):
        rewritten(sort)


def test_functions_for_two_devices_have_two_names() -> None:
    concrete = jitted(lambda x: sort(tf.sin(x)) * 2.0).get_concrete_function(X)
    devices = (DEVICE, DEVICE.replace("TPU:1", "TPU:0"), "")
    with hostcall.scope(route="partition"):
        names = {rewritten_for(concrete, device).name for device in devices}
    assert len(names) == 3


def test_loops_on_the_host_carry_no_floats_of_eight_bits() -> None:
    narrow = tf.as_dtype("float8_e5m2")

    def program(x: Any) -> Any:
        y = tf.cast(x, narrow)
        for _ in tf.range(3):
            y = tf.ensure_shape(tf.numpy_function(np.sort, [y], narrow), y.shape)
        return tf.cast(y, x.dtype)

    found = functions_of(rewritten(program))
    loops = [node for f in found for node in f.node_def if node.op == "While"]
    assert loops
    for loop in loops:
        assert narrow.as_datatype_enum not in loop.attr["T"].list.type
        body = next(f for f in found if f.signature.name == loop.attr["body"].func.name)
        taken = [arg.type for arg in body.signature.input_arg]
        assert taken == list(loop.attr["T"].list.type)


def test_no_cluster_returns_a_handle() -> None:
    variable = tf.Variable([1.0, 2.0, 3.0, 4.0])

    def program(x: Any) -> Any:
        variable.assign(sort(x))
        return tf.identity(variable.handle)

    for function in functions_of(rewritten(program)):
        if "_XlaMustCompile" in function.attr:
            returned = [result.type for result in function.signature.output_arg]
            assert tf.resource.as_datatype_enum not in returned
