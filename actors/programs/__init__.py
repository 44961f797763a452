"""What a turn runs: DSPy signatures, the three routes, the models they call."""
