"""The files of exported programs."""
