"""Problem files whose inputs have the sizes that a test gives."""

SCALE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * y
{constants}
def get_inputs():
    return [torch.rand({shape}), torch.rand({other})]
def get_init_inputs():
    return []
"""
