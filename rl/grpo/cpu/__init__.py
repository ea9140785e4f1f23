"""What SkyRL and vLLM need where there is no GPU."""
