"""What a Python function is to hostcall: what is declared of it, and how it is found and called."""
