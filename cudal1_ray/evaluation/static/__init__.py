"""The cheap first gate: what a candidate's text gives away before anything of it runs."""

from .checks import Finding, check_static

__all__ = ["Finding", "check_static"]
