"""Passes, tested by text: the program before and after one, checked by filecheck."""

import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
import tensorflow as tf
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

import hostcall
from hostcall._compiler import kernel_hook, passes, plan, refusals
from hostcall._compiler.clusters.partitioner import Partitioner
from hostcall._compiler.one_program import async_calls, host_regions, ordering
from hostcall._compiler.semantics import failures
from hostcall._compiler.sizes import shape_agnostic
from hostcall._tf import concrete_functions
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.graph.program import ProgramModel
from hostcall._tf.types import FunctionDefLibrary

X = tf.TensorSpec([2, 2], tf.float32)

Pass = Callable[[FunctionDefLibrary, str], Iterable[Any]]


class Case(NamedTuple):
    """A function, the pass that changes its program, and filecheck's lines about both."""

    function: Callable[..., Any]
    run: Pass
    checks: str


CASES: list[Case] = []


def case(run: Pass, checks: str) -> Callable[[Callable[..., Any]], None]:
    """Make a case of a function of an array `x` of two rows and columns."""
    return lambda function: CASES.append(Case(function, run, checks))


def overlap(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    ordered, entry = ordering.order_side_effects(library, entry)
    async_calls.begin_early(ordered, entry, library)
    return ordered.function


def partitioner_of(library: FunctionDefLibrary, entry: str) -> Partitioner:
    planned = plan.predict(library, entry)
    assert isinstance(planned, plan.Clusters)
    return planned.partitioner


def regions(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    partitioner = partitioner_of(library, entry)
    program = host_regions.write(partitioner.library, entry, partitioner.host_ops, "_new")
    return [*program.library.function, *program.functions]


def clusters(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    partitioner = partitioner_of(library, entry)
    partitioner.partition(entry)
    return partitioner.functions.values()


def uncompiled(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    """Let TensorFlow's kernels run the cluster that calls Python."""
    new = protos.function_pb2.FunctionDefLibrary(function=clusters(library, entry))
    for name in [f.signature.name for f in new.function if defs.nodes_of(f, {"PyFuncStateless"})]:
        replacement = kernel_hook.plain_for_kernel(new.SerializeToString(), name)
        new.MergeFromString(replacement.library)
    return new.function


def order(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    return ordering.order_side_effects(library, entry)[0].function


def graph_values(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    passes.keep_graph_mode(library, entry)
    return library.function


def graph_errors(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    return failures.add(library, entry).function


def apart_twice(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    """Keep results apart as for a cluster, and again when the cluster is compiled."""
    passes.keep_graph_mode(library, entry)
    for _ in range(2):
        passes.keep_results_apart(library, entry)
    return library.function


def free_shapes(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    shape_agnostic.record(library, entry)
    return library.function


def narrowed(library: FunctionDefLibrary, entry: str) -> Iterable[Any]:
    refusals.narrow(library, entry, "a message that names no op")
    return library.function


@hostcall.callback(result=lambda x: x)
def effect(x: Any) -> Any:
    return x


@hostcall.callback(result=lambda x: x, stateful=False, concurrent=True)
def call(x: Any) -> Any:
    return x


@hostcall.callback(result=tf.TensorSpec([None], tf.float32), stateful=False)
def some(x: Any) -> Any:
    return x[x > 0]


@case(
    overlap,
    """
    CHECK: %call = PyFuncStateless(%x)
    CHECK: %call_1 = PyFuncStateless(%x)
    CHECK-LABEL: AFTER
    CHECK: %call = HostcallDone(%x, %call/hostcall_start, %hostcall_gate_0)
    CHECK: %call_1 = HostcallDone(%x, %call_1/hostcall_start, %hostcall_gate_0)
    CHECK: %call/hostcall_start = HostcallStart(%x)
    CHECK: %call_1/hostcall_start = HostcallStart(%x)
    CHECK: %hostcall_gate_0 = HostcallGate(%call/hostcall_start, %call_1/hostcall_start)
    """,
)
def independent_calls(x: tf.Tensor) -> tf.Tensor:
    return call(x) + call(x)


@case(
    overlap,
    """
    CHECK-LABEL: AFTER
    CHECK: %product = MatMul(%x, %x)
    CHECK: %call = HostcallDone(%x, %call/hostcall_start, %hostcall_gate_0)
    CHECK: %hostcall_gate_0 = HostcallGate(%call/hostcall_start, %product)
    CHECK-NOT: HostcallGate
    """,
)
def a_call_beside_a_product(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.linalg.matmul(x, x, name="product"), call(x) + 1.0


@case(
    regions,
    """
    CHECK: %StringFormat = StringFormat(%mul)
    CHECK: %PrintV2 = PrintV2(%StringFormat)
    CHECK-LABEL: AFTER
    CHECK: _new(%x: float32, %hostcall_scope: int64) -> (identity: %Identity) [^hostcall_region_0]
    CHECK: %hostcall_region_0 = HostcallRegion(%hostcall_scope, %mul) {Tin: [float32], Tout: []
    CHECK-NEXT: %Cos = Cos(%mul)
    CHECK: _new_region_0(%hostcall_arg_0: float32) -> (){{$}}
    CHECK-NEXT: %StringFormat = StringFormat(%hostcall_arg_0)
    CHECK-NEXT: %PrintV2 = PrintV2(%StringFormat)
    """,
)
def what_is_printed(x: tf.Tensor) -> tf.Tensor:
    y = x * 2.0
    tf.print(y)
    return tf.cos(y)


@case(
    regions,
    """
    CHECK: %while = StatelessWhile({{.*}}, %AsString) {T: [int32, int32, int32, string]
    CHECK-LABEL: AFTER
    CHECK: %hostcall_region_0 = HostcallStatelessRegion({{.*}}Tout: [int64]
    CHECK: %while = StatelessWhile({{.*}}, %hostcall_region_0, %hostcall_scope)
    CHECK-SAME: {T: [int32, int32, int32, int64, int64]
    CHECK: %while_placeholder_1: int64, %hostcall_scope: int64) -> ({{.*}}, hostcall_scope: %
    CHECK: _new_region_2(%hostcall_arg_0: string) -> (output_0: %while/Identity_3)
    CHECK-NEXT: %while/StringJoin/inputs_1 = Const() {dtype: string, value: b'a'}
    """,
)
def a_loop_with_text(x: tf.Tensor) -> tf.Tensor:
    loop = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, text: (i + 1, tf.strings.join([text, "a"])),
        [0, tf.strings.as_string(x[0, 0])],
    )
    return tf.strings.length(loop[1])


@case(
    regions,
    """
    CHECK: %Const = Const() {dtype: string, value: b'a'} [^Cos]
    CHECK-LABEL: AFTER
    CHECK: _new_region_0(%hostcall_arg_0: float32)
    CHECK-NEXT: %Const = Const() {dtype: string, value: b'a'}{{$}}
    CHECK-NEXT: %AsString = AsString(%hostcall_arg_0)
    """,
)
def a_constant_that_waits(x: tf.Tensor) -> tf.Tensor:
    cosine = tf.cos(x)
    with tf.control_dependencies([cosine]):
        constant = tf.constant("a")
    text = tf.strings.join([constant, tf.strings.as_string(x)])
    return tf.cast(tf.strings.length(text), tf.float32) * cosine


@case(
    regions,
    """
    CHECK: while_body_{{.*}} -> ({{.*}}while_identity_3: %while/Identity_3, while_identity_4:
    CHECK-LABEL: AFTER
    CHECK: while_identity_3: %hostcall_region_2:0, while_identity_4: %hostcall_region_2:1,
    CHECK-SAME: while_identity_5: %hostcall_region_2:2, while_identity_6: %hostcall_region_2:3
    CHECK: _new_region_2({{.*}} -> (output_0: %while/Identity_3, output_1: %while/Identity_4,
    CHECK-SAME: output_2: %while/Identity_5, output_3: %while/Identity_6)
    """,
)
def a_loop_that_returns_texts(x: tf.Tensor) -> tf.Tensor:
    text = tf.strings.as_string(x[0, 0])
    loop = tf.while_loop(
        lambda i, *_: i < 3,
        lambda i, *texts: (i + 1, *tf.unstack(tf.strings.join([tf.stack(texts), "a"]))),
        [0, text, text, text, text],
    )
    return tf.strings.length(tf.strings.join(loop[1:]))


@case(
    clusters,
    """
    CHECK-LABEL: AFTER
    CHECK: __partitioned(%x: float32) -> (identity: %hostcall_cluster_1,
    CHECK: %some = PyFuncStateless(%hostcall_cluster_0:[[ONE:[01]]])
    CHECK: %hostcall_cluster_0 = PartitionedCall(%x) {{.*}}_XlaMustCompile: true
    CHECK: %hostcall_cluster_1 = PartitionedCall(%some)
    CHECK: __cluster_0(%hostcall_arg_0: float32)
    CHECK: %Sin = Sin(%hostcall_arg_0)
    CHECK: __cluster_1(%hostcall_arg_0: float32)
    CHECK: %Cos = Cos(%hostcall_arg_0)
    CHECK: %Sum = Sum(%Cos, %Const)
    """,
)
def a_call_between_clusters(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    y = tf.sin(x)
    return tf.reduce_sum(tf.cos(some(y))), y * 2.0


@case(
    clusters,
    """
    CHECK: then_branch: @cond_true_
    CHECK-LABEL: AFTER
    CHECK: then_branch: @{{.*}}__partitioned_2_cond_true_
    CHECK: __partitioned_2_cond_true_{{.*}} -> (cond_identity: %hostcall_cluster_0) [^cond/some]
    CHECK: %cond/some = PyFuncStateless(%cond_some_x)
    CHECK: %hostcall_cluster_0 = PartitionedCall(%cond/some)
    """,
)
def a_call_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0, 0] > 0.0, lambda: tf.reduce_sum(some(x)), lambda: tf.reduce_sum(x))


@case(
    order,
    """
    CHECK: %NoOp = NoOp() [^effect, ^effect_1]
    CHECK-LABEL: AFTER
    CHECK: __hostcall(%x: float32) -> (identity: %Identity) [^effect, ^effect_1]
    CHECK: %effect = PyFunc(%Sin) {{.*}}_xla_original_oc_node_name: 'effect',
    CHECK-SAME: _xla_token_input_nodes: ['_xla_token_arg_node']
    CHECK: %effect_1 = PyFunc(%x) {{.*}}_xla_token_input_nodes: ['effect']{{.*}} [^effect]
    CHECK-NOT: NoOp
    CHECK: %Identity = Identity(%add) {T: float32} [^effect, ^effect_1]
    CHECK-NOT: NoOp
    """,
)
def two_effects(x: tf.Tensor) -> Any:
    return effect(tf.sin(x)) + effect(x)


@case(
    order,
    """
    CHECK: body: @while_body_
    CHECK-LABEL: AFTER
    CHECK: [[PROGRAM:@.*]]__hostcall(%x: float32) -> (identity: %Identity) [^while]
    CHECK: %while = While({{.*}}_xla_original_oc_node_name: 'while'
    CHECK-SAME: body: [[PROGRAM]]__hostcall__0_while_body_
    CHECK: [[PROGRAM]]__hostcall__0_while_body_{{.*}} [^while/effect]
    CHECK: %while/effect = PyFunc({{.*}}_xla_token_input_nodes: ['_xla_token_arg_node']
    CHECK: [[PROGRAM]]__hostcall__1_while_cond_
    """,
)
def an_effect_in_a_loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, effect(y)), [0, x])[1]


@case(
    graph_values,
    """
    CHECK: %shifted = LeftShift(%Cast, %shifted/y)
    CHECK-LABEL: AFTER
    CHECK: %shifted/hostcall_0 = Const() {dtype: int32, value: 31}
    CHECK: %shifted/hostcall_1 = Minimum(%shifted/y, %shifted/hostcall_0)
    CHECK: %shifted/hostcall_3 = Maximum(%shifted/hostcall_1, %shifted/hostcall_2)
    CHECK: %shifted/hostcall_4 = LeftShift(%Cast, %shifted/hostcall_3)
    CHECK: %shifted = Identity(%shifted/hostcall_4)
    """,
)
def a_shift_by_too_much(x: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.left_shift(tf.cast(x, tf.int32), 40, name="shifted")


@case(
    graph_values,
    """
    CHECK: %Where = Where(%Greater) {T: bool}
    CHECK: %MatrixInverse = MatrixInverse(%x) {T: float32, adjoint: false}
    CHECK-LABEL: AFTER
    CHECK: %Where = Where(%Greater) {T: bool, _hostcall_predicted: [0, 0]}
    CHECK: %MatrixInverse = MatrixInverse(%x) {T: float32, _hostcall_wrong: 'XLA computes
    """,
)
def a_bounded_size_and_a_wrong_kernel(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reduce_mean(tf.cast(tf.where(x > 0), tf.float32)), tf.linalg.inv(x)


@case(
    graph_errors,
    """
    CHECK: %taken = GatherV2(%x, %Cast, %taken/axis)
    CHECK-LABEL: AFTER
    CHECK: [[OUTSIDE:%.*]] = HostcallAny(%Cast, {{.*}}kind: 'outside'
    CHECK: [[FAILS:%.*]] = HostcallAnd([[OUTSIDE]],
    CHECK: %hostcall_raise_1 = HostcallRaise([[FAILS]]) {T: [bool], errors: ['1:3:indices
    """,
)
def an_index(x: tf.Tensor) -> tf.Tensor:
    return tf.gather(x, tf.cast(x[0, 0], tf.int32), name="taken")


@case(
    free_shapes,
    """
    CHECK: %some = PyFuncStateless(%x)
    CHECK-NOT: _hostcall_shape_agnostic_results
    CHECK-LABEL: AFTER
    CHECK: %some = PyFuncStateless(%x) {{.*}}_hostcall_shape_agnostic_results: [0, -1]
    CHECK: %some_1 = PyFuncStateless(%x)
    CHECK-NOT: _hostcall_shape_agnostic_results
    """,
)
def an_unused_result(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
    some(x)
    return x, some(x)


@case(
    apart_twice,
    """
    CHECK-LABEL: AFTER
    CHECK: %Where = Where(%Greater)
    CHECK: %Where_1 = Where(%Greater_1)
    CHECK: = SelectV2({{.*}}%Identity,
    CHECK: = SelectV2({{.*}}%Identity_1,
    CHECK-NOT: SelectV2
    """,
)
def two_results_of_bounded_sizes(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.where(x > 1.0), tf.where(x > 2.0)


@case(
    narrowed,
    """
    CHECK-LABEL: AFTER
    CHECK: %Sin = Sin(%x) {T: float32}
    CHECK: %Cos = Cos(%Sin) {T: float32}
    CHECK: %Tan = Tan(%x) {T: float32, _hostcall_later: true}
    CHECK: %add = AddV2(%Cos, %Tan) {T: float32, _hostcall_later: true}
    """,
)
def an_unnamed_refusal(x: tf.Tensor) -> tf.Tensor:
    return tf.cos(tf.sin(x)) + tf.tan(x)


@case(
    uncompiled,
    """
    CHECK-LABEL: AFTER
    CHECK: %call = PyFuncStateless(%hostcall_arg_0)
    CHECK: @{{.*}}__uncompiled{{.*}}(%hostcall_arg_0
    CHECK: %call = PyFunc(%hostcall_arg_0) {{.*}}/host'
    """,
)
def a_call_in_a_cluster(x: tf.Tensor) -> Any:
    return call(some(x))


@pytest.mark.usefixtures("auto_route", "every_cluster")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_programs_before_and_after(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    concrete = tf.function(case.function, jit_compile=True).get_concrete_function(X)
    library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
    before = ProgramModel(library.function)
    after = ProgramModel(
        case.run(defs.with_defaults(library), concrete.function_def.signature.name)
    )
    options = Options("the checks", "the program")
    programs = FInput("the program", f"{before}\nAFTER\n{after}\n")
    checks = Parser(options, io.StringIO(case.checks), *pattern_for_opts(options))
    failed = Matcher(options, programs, checks).run()
    assert not failed, f"{capsys.readouterr().err}\n{programs.content}"
