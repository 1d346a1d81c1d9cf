"""The stages of a run: supervised fine-tuning, self-supervised rounds, contrastive reinforcement learning."""
