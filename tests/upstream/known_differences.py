"""The tests of TensorFlow's that come out in another way with hostcall, as they should.

Each expects that XLA refuses a function which hostcall partitions. `docs/upstream-tests.md` says
the same to users.
"""

_UNSUPPORTED = "expects that ops on strings in a compiled function are refused"

KNOWN_DIFFERENCES: dict[str, str] = {
    "upstream_jit_compile_test.JitCompileTest.testUnsupportedOps": (
        "expects that an op without an XLA kernel is refused"
    ),
    **{
        f"upstream_polymorphic_function_xla_jit_test.FunctionTest.{name}": reason
        for name, reason in {
            "testUnsupportedOps": "expects that an op without an XLA kernel is refused",
            "testNestedCallUnsupportedOps": "expects that an op without an XLA kernel is refused",
            "testMethodCompilationUnsupportedFunc": _UNSUPPORTED,
            "testPythonStackTrace": _UNSUPPORTED,
            "testPythonStackTraceCompiledWithinCompiled": _UNSUPPORTED,
            "testPythonStackTraceCompiledWithinUncompiled": _UNSUPPORTED,
            "testPythonStackTraceUncompiledWithinCompiled": _UNSUPPORTED,
            "testErrorMessagePassingTensorArray": (
                "expects that the gradient of a compiled tf.TensorArray is refused"
            ),
            "testErrMsgAssignWrongShape": (
                "expects that XLA refuses to change the shape of a variable; with hostcall, "
                "TensorFlow's own assignment refuses it, in other words"
            ),
        }.items()
    },
}
