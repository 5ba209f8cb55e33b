"""`python -m hostcall`: the command line."""

from hostcall._cli import main

main(prog_name="hostcall")
