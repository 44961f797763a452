"""Read models: what readers ask for, folded from the log and from nothing else."""
