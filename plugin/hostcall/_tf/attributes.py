"""The attributes that hostcall writes onto nodes and functions, by their names.

C++ has them from here as well: the build turns each line `NAME = "_hostcall_..."` into a constant
of the header `hostcall_attributes.h`.
"""

from __future__ import annotations

# On any op.
REFUSED = "_hostcall_refused"  # why XLA does not compile it, as it has said when it came to it
REPLACED = "_hostcall_replaced"  # others have taken its place, so that it is not to run
BRANCHES_DIFFER = "_hostcall_branches_differ"  # the branches of a conditional return other shapes
HINDERED = "_hostcall_hindered"  # what hinders it from being part of a program, for the user
FORESEEN = "_hostcall_foreseen"  # the (result, dimension)s that were taken for bounded
LATER = "_hostcall_later"  # it is compiled apart from the nodes of its function without this mark
WRONG = "_hostcall_wrong"  # what XLA's kernel computes wrong, for the user
LOSES_ORDER = "_hostcall_loses_order"  # XLA would not keep the order of the calls in it and beside

# On a script op.
ROUTE = "_hostcall_route"  # the route that was asked for, where that is not "auto"
SHAPES = "_hostcall_shapes"  # the shapes that tracing ended with: one for each result
FREE_SHAPES = "_hostcall_free_shapes"  # (result, number of elements)s: any shape will do for them
UNORDERED = "_hostcall_unordered"  # its function is declared pure, so that no call waits for it
RECORD = "_hostcall_record"  # a Recording: whether a gradient of the call can be asked for

# On an op that calls Python and is no script op.
CALLS_PYTHON = "_hostcall_calls_python"
HAS_TOKEN = "_hostcall_has_token"  # whether a token goes through it
MODULE = "_hostcall_module"  # the key of its program, as bytes

# On a function.
CLUSTER = "_hostcall_cluster"  # it has come out of a partitioning, and is compiled as it is
SEQUENTIAL = "_hostcall_sequential"  # its nodes run one after the other, on one thread
TRACKS_RUN = "_hostcall_tracks_run"  # its calls keep something until the program has run
SHARES_MEMORY = "_hostcall_shares_memory"  # arrays of callbacks may lie in its memory
TAKES_TURNS = "_hostcall_takes_turns"  # calls that have no order must not overlap

# On a host op of a function whose nodes run one after the other: it tells when it fails.
NOTES_ERRORS = "_hostcall_notes_errors"

# On a call in a partitioned function, of another one out of the same partitioning.
INNER_CALL = "_hostcall_inner_call"

# On a call of a cluster whose function several programs have in common.
CLUSTER_NAME = "_hostcall_cluster_name"  # by which the cluster is counted and talked about
