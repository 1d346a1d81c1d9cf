"""`/v1/optimize`: jobs that make a user's module faster, in verified rounds of contrastive prompting."""
