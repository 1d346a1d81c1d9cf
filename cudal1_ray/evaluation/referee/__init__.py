"""The trusted side: a problem's trials and inputs, and the comparison of a candidate's outputs."""
