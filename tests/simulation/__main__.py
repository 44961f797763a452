"""`python -m tests.simulation [--seeds N] [--first N] [--seed N]`: many schedules, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.run import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.seed is not None:
        outcome = simulate(options.seed, keep_trace=True)
        print("\n".join([*outcome.trace, *outcome.flaws, f"digest {outcome.digest}"]))
        return 1 if outcome.flaws else 0
    began, faults, bad = time.monotonic(), Counter[str](), []
    events = turns = resumed = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            outcome = simulate(seed)
        except Exception as error:  # what was thrown at a client is as bad as a flaw
            bad.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        faults.update(outcome.faults)
        events, turns, resumed = events + outcome.events, turns + outcome.turns, resumed + outcome.resumed
        if outcome.flaws:
            bad.append(seed)
            print(f"seed {seed}: {'; '.join(outcome.flaws[:3])}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{options.seeds} schedules in {seconds:.1f} s, {options.seeds / seconds:.1f} a second")
    print(f"{turns} turns, {resumed} taken up again, {events} events; faults: {dict(sorted(faults.items()))}")
    print(f"failing seeds: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
