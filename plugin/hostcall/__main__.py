"""`python -m hostcall`: the command line."""

from hostcall_command.commands import main

if __name__ == "__main__":
    main(prog_name="hostcall")
