"""The build and the trial of the files for package indexes: wheels, and an sdist.

`python -m wheels` (`make wheels`) builds them. `python -m wheels.trying`
installs and uses them. `matrix.py` lists the wheels. See CONTRIBUTING.md.
"""
