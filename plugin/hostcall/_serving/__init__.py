"""Workers: processes that call Python functions for programs that hold no Python."""
