"""What the `cudal1` command does beside training: judging one candidate, examining the machine."""
