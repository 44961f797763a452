"""Where generated code runs: one contract, several backends, one conformance suite."""
