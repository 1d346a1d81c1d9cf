"""The time of calls: the clocks, the statistics over them, and the interleaved measurement."""
