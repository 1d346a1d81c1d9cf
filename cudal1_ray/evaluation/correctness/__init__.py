"""The second stage: whether a candidate's outputs are right, and what one of its calls runs."""
