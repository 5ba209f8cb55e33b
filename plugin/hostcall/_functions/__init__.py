"""What users say of their Python functions, and ask of them, in the terms of no framework."""
