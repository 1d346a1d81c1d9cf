"""Training: the three stages, the session they share, and the run's folder. `training.train` runs all of it."""
