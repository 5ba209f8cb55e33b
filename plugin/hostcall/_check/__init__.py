"""`hostcall.check`: tries a callback against what is declared of it, one module a kind of check."""
