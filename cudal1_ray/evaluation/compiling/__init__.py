"""The compile step of inline extensions, apart from evaluation and without a GPU."""
