"""Python that the offline model writes into cells: standard library only, each file readable on its own in a log."""
