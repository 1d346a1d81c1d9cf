"""The trusted side: a problem's trials and inputs, and the comparison of what a candidate makes of them."""
