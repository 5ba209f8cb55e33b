"""`python -m hostcall`: the command line."""

from hostcall_command import main

if __name__ == "__main__":
    main()
