"""The last stage: whether what a candidate seems to gain is its own, and shows again."""
