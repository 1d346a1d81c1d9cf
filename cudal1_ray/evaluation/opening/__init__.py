"""The problems that an evaluator holds open: how they are opened, stored and timed without a candidate."""
