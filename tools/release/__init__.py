"""Build, compare and check the directory of a release."""
