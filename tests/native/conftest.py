"""The tests that `make test` leaves to `make sanitize`, which reads no conftest.py."""

# A process for each test, and many of them.
collect_ignore = ["test_frames_exit.py"]
