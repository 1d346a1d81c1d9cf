"""Data that referee and contestants exchange: messages, descriptions of tensors, recipes for inputs."""
