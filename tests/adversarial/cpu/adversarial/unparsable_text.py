"""Not Python at all."""


# problem: chain
# expect: refused
# reasons: unparsable
# ruff: noqa
class ModelNew:
    forward = None


return ModelNew
