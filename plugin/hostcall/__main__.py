"""`python -m hostcall`: the command line."""

from hostcall._cli.commands import main

main(prog_name="hostcall")
