"""Processes that hold one model each: the server they are forked from, the harness inside them, their handles."""
