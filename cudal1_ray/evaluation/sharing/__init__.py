"""What the evaluators of a device share: its turns, the cores, its memory, and the candidates that wait."""
