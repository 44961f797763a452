"""Sessions, turns and child agents: pure deciders, the effects journal, programs, sandboxes and their Ray shell."""
