"""Graph mode's values and errors in compiled programs."""
