"""What travels between referee and contestants: messages, descriptions of tensors, recipes for inputs."""
