"""How many small changes of the code that proves and recovers its tests notice.

    python -m benchmarks.mutation [--each 12] [--seed 1]

From each module so many mutants are drawn: a comparison turned round, a number moved, a condition negated, a statement
left out. Each is one run of the module's tests; what survives is printed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks import marks
from benchmarks.stacks import SOURCE

MODULES = {
    "events/chain.py": ("tests/events/test_chain.py", "tests/events/test_packs.py"),
    "events/audit.py": ("tests/events/test_packs.py",),
    "events/pack_proof.py": ("tests/events/test_packs.py",),
    "actors/recording.py": ("tests/actors/test_recovery.py", "tests/actors/test_replay.py"),
    "actors/taking_up.py": ("tests/actors/test_recovery.py",),
    "actors/unfinished.py": ("tests/actors/test_unfinished.py", "tests/actors/test_recovery.py"),
    "actors/session.py": ("tests/actors/test_session.py", "tests/actors/test_forks.py"),
}
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SECONDS = 120


def mutants(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Every mutant with what it does; annotations and docstrings are left alone."""
    for number, node in enumerate(ast.walk(tree)):
        match node:
            case ast.Compare(ops=[op]) if type(op) in TURNED:
                yield _changed(tree, number, "comparison", lambda n: setattr(n, "ops", [TURNED[type(n.ops[0])]()]))
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                yield _changed(tree, number, f"{value} to {value + 1}", lambda n: setattr(n, "value", n.value + 1))
            case ast.If() | ast.IfExp():
                yield _changed(tree, number, "condition", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test)))
            case ast.BoolOp(op=op):
                other = ast.Or() if isinstance(op, ast.And) else ast.And()
                yield _changed(tree, number, "and/or", lambda n, other=other: setattr(n, "op", other))
            case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield _changed(tree, number, "left out", None)
            case _:
                pass


def _changed(tree: ast.Module, number: int, what: str, change: object) -> tuple[str, ast.Module]:
    made = copy.deepcopy(tree)
    node = list(ast.walk(made))[number]
    where = f"line {getattr(node, 'lineno', 0)}: {what}"
    if callable(change):
        change(node)
    else:
        for parent in ast.walk(made):
            for body in ("body", "orelse", "finalbody"):
                block = getattr(parent, body, None)
                if isinstance(block, list) and node in block:
                    block[block.index(node)] = ast.Pass()
    return where, ast.fix_missing_locations(made)


def killed(path: Path, code: str, tests: tuple[str, ...]) -> bool:
    """Whether the tests fail on this code."""
    original = path.read_bytes()
    try:
        path.write_text(code)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        return subprocess.run(command, cwd=SOURCE, capture_output=True, timeout=SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_bytes(original)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = Random(options.seed)
    total = dead = 0
    for name, tests in MODULES.items():
        path = SOURCE / name
        tree = ast.parse(path.read_text())
        body = list(mutants(tree))
        drawn = random.sample(body, min(options.each, len(body)))
        for where, mutant in drawn:
            total += 1
            if killed(path, ast.unparse(mutant), tests):
                dead += 1
            else:
                print(f"survived: {name} {where}", flush=True)
        print(f"{name}: {len(body)} mutants, {len(drawn)} drawn", flush=True)
    marks.write("mutation", [marks.Mark("mutants noticed", 100 * dead / total, "%", least=80)], drawn=total)


if __name__ == "__main__":
    main()
