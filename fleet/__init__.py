"""The composition root: command line, configuration, and the local stack."""
