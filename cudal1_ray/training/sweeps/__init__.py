"""Sweeps: `cudal1 train -m key=a,b other=1,2` runs every combination of values on one Ray cluster."""
