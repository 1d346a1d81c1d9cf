"""The cheap first gate: what a candidate's text gives away before anything of it runs."""

from .checks import Finding, Look, check_static

__all__ = ["Finding", "Look", "check_static"]
