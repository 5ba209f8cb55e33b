"""What makes and tries the files for package indexes: wheels, and an sdist. See CONTRIBUTING.md.

`python -m wheels` builds them, which is `make wheels`, and `python -m wheels.trying` installs and
uses them, which is `make test-wheel`. `matrix.py` says which there are.
"""
