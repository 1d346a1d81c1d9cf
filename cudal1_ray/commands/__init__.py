"""What the `cudal1` command does beside training: evaluating one candidate, examining the machine."""
