"""Benchmarks of hostcall: one file a question, each beside its peers in one run; see README.md."""

QUESTIONS = (
    "programs",
    "semantics",
    "loop",
    "loop_sizes",
    "jax_calls",
    "unrolled",
    "native",
    "single_call",
    "bound",
    "size",
    "threads",
    "without_callbacks",
    "import_time",
    "tracing",
    "models",
    "memory",
    "partition",
    "host_op_loops",
    "compilations",
    "host_ops",
    "ragged",
    "inner_programs",
    "worker",
    "overlap",
    "unawaited",
    "executors",
)

# Only `make bench-gpu` asks these.
ON_GPU = ("gpu",)
