"""What the command `hostcall` does."""
