"""The trusted side: a problem's trials and inputs, and the judgement over what a candidate makes of them."""
