"""The modules of this package that `hostcall` uses: for exports, their loading, and passes for JAX.

The rest of the package is only for the package itself, its command and its tests.
"""

from hostcall_mlir.ir import custom_calls as custom_calls
from hostcall_mlir.ir import jaxlib_names as jaxlib_names
from hostcall_mlir.passes import overlap as overlap
from hostcall_mlir.passes import tokens as tokens
from hostcall_mlir.program import files as files
from hostcall_mlir.program import function_lookup as function_lookup
from hostcall_mlir.program import manifests as manifests
from hostcall_mlir.program import portable as portable
from hostcall_mlir.program import structures as structures
