"""Not Python at all."""


# problem: chain
# ruff: noqa
class ModelNew:
    forward = None


return ModelNew
