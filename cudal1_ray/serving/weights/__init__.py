"""New weights under a running server: versions, the rolling update over replicas, and its routes."""
