"""How Python source is read: as text, in its normal form, what names mean, where inputs flow, what is suspicious.

Nothing here executes source, and nothing here imports another package of the project.
"""
