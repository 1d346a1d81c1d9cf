"""OpenAI's protocol on vLLM's asynchronous engine."""
