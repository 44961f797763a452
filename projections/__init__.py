"""Read models: folds over the log that answer what users ask (history, files, usage, agents)."""
