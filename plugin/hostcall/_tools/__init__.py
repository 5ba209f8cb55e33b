"""What people and pipelines ask hostcall: checks, explanations, files, the command line."""
