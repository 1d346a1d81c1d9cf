"""A population simulator: every selection strategy on a thousand problems in minutes, without a model.

Recorded verdicts are the world (`recorded`, `world`), a stated rule decides what a policy writes after it was shown
exemplars (`policy`), and the real strategies choose those from a real buffer (`population`). It shows how a
strategy fares *if* policies write by that rule; it shows nothing of what a policy learns.
"""
