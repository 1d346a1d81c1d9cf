"""The evaluator inside other people's tools: TRL, verl, verifiers, MCP, and anything that speaks HTTP.

Each module needs only the library that it is named after, and imports it where it is used. All of them turn a
completion into a reward in the same way, `integrations.rewards`, with an evaluator on this machine or behind the
`/v1/evaluate` endpoint of `cudal1 serve`.
"""
