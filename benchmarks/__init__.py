"""Measurements: each module prints a table of medians and writes JSON to benchmarks/results/."""
