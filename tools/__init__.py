"""Programs of the build."""
