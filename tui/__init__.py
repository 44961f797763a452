"""The operator's terminal: a client of the gateway, and of nothing else."""
