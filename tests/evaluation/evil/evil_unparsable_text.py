"""Not Python at all."""


# problem: chain
# reasons: unparsable
# ruff: noqa
class ModelNew:
    forward = None


return ModelNew
