"""A population simulator: every selection strategy on a thousand problems in minutes, without a model.

Recorded verdicts are the world (`recorded`, `world`), a stated rule says what a policy writes after it was shown
exemplars (`policy`), and the real strategies choose those from a real buffer (`population`). What it can tell is how a
strategy fares *if* policies write by that rule; it tells nothing of what a policy learns.
"""
