"""The first stage: whether a candidate imports and constructs. No problem is opened for it."""
