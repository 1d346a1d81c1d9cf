"""Thin Ray actors over the domain packages, the fleets that replace them, and the queues that feed them.

Modules are imported by their names: `config` by every command, the others only where Ray runs.
"""
