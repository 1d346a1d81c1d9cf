"""Measurements of the system; README.md says which command answers which question."""
