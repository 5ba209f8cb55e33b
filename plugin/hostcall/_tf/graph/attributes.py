"""The names of the attributes that hostcall writes onto nodes and functions.

Python and C++ share them: the build turns each line `NAME = "_hostcall_..."` into a constant of the
header `hostcall_attributes.h`.
"""

# On any op.
REFUSED = "_hostcall_refused"  # the refusal that XLA gave when it tried to compile the op
REPLACED = "_hostcall_replaced"  # other ops have replaced it, so it must not run
BRANCHES_DIFFER = "_hostcall_branches_differ"  # the branches return different shapes
BLOCKER = "_hostcall_blocker"  # why it cannot be part of a program, for the user
PREDICTED = "_hostcall_predicted"  # the (result, dimension) pairs that were assumed to be bounded
LATER = "_hostcall_later"  # it is compiled apart from the nodes of its function without this mark
WRONG = "_hostcall_wrong"  # the error in the results of XLA's kernel, for the user

# On a script op.
ROUTE = "_hostcall_route"  # the requested route, if it is not "auto"
SHAPES = "_hostcall_shapes"  # the shapes at the end of tracing, one for each result
SHAPE_AGNOSTIC_RESULTS = (
    "_hostcall_shape_agnostic_results"  # (result, number of elements) pairs: any shape fits them
)
UNORDERED = "_hostcall_unordered"  # its function is declared pure, so no call waits for it
AFTER_RAISE = "_hostcall_after_raise"  # it waits for the errors of values before it
AFTER_EFFECTS = "_hostcall_after_effects"  # its operand follows from the last effect before it
RECORD = "_hostcall_record"  # a ResidualMode: whether the program can ask for the call's gradient

# On a node of a must-compile function in a SavedModel, for servers without Python.
PROGRAM = "_hostcall_program"  # what is compiled in the place of the function
UNCOMPILED = "_hostcall_uncompiled"  # why TensorFlow's kernels are to run the function

# On an op that calls Python and is not a script op.
CALLS_PYTHON = "_hostcall_calls_python"
HAS_TOKEN = "_hostcall_has_token"  # whether it takes and returns a token
MODULE = "_hostcall_module"  # the key of its program, as bytes

# On an argument of a function.
CAPTURED = "_hostcall_captured"  # the value of the tensor that the function captures there

# On a function.
CLUSTER = "_hostcall_cluster"  # partitioning has made it, and it is compiled unchanged
ONLY_RAISES = "_hostcall_only_raises"  # its program calls the host for errors of values alone
SEQUENTIAL = "_hostcall_sequential"  # its nodes run one after the other, on one thread
TRACKS_RUN = "_hostcall_tracks_run"  # its calls keep something until the program has run
SHARES_MEMORY = "_hostcall_shares_memory"  # arrays of callbacks may lie in the program's memory
TAKES_TURNS = "_hostcall_takes_turns"  # its unordered calls must not overlap

# On a host op of a SEQUENTIAL function: when the op fails, it notes its name for the error.
NOTES_ERRORS = "_hostcall_notes_errors"

# On a call in a partitioned function, of another function from the same partitioning.
INNER_CALL = "_hostcall_inner_call"

# On the function that a call names: a number of the call, so that its kernels are its own.
INSTANCE = "_hostcall_instance"

# On a call of a cluster whose function is shared by several programs.
CLUSTER_NAME = "_hostcall_cluster_name"  # the cluster's own name, for counts and messages
