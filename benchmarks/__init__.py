"""Measurements of the system; README.md lists which command answers which question."""
