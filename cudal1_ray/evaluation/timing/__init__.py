"""How long calls take: the clocks, the statistics over them, the interleaved measurement, turns on a device."""
