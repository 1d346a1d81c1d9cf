"""cuDNN is switched off for all others and on for this candidate's own calls."""
# problem: conv
# expect: uncredited
# reasons: global_state_tamper, runtime_error
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.enabled = False


class ModelNew(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = nn.Conv2d(c, d, 3, padding=1)
        self.bn = nn.BatchNorm2d(d).eval()

    def forward(self, x):
        torch.backends.cudnn.enabled = True
        out = F.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        torch.backends.cudnn.enabled = False
        return out
