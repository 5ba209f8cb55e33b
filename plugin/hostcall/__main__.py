"""`python -m hostcall`: the command line."""

from hostcall_command.commands import main

main(prog_name="hostcall")
