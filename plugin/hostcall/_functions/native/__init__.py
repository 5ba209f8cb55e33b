"""Native code that compiled programs call without Python: C functions and FFI handlers."""
