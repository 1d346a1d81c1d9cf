"""cudal1_ray: contrastive reinforcement learning that teaches a language model to write faster GPU code.

A problem becomes a prompt, the prompt becomes candidates, a candidate becomes a verdict, verdicts become rewards,
rewards become weights; and verdicts, kept as exemplars, become the next prompt. One folder per arrow of that sentence.
"""

__version__ = "0.1.0"
