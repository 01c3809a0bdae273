"""`python -m tests.prove.zoo`: all handlers, or those whose names are given."""

import argparse
import sys
import time

from tests.prove.zoo.entries import Entry, load
from tests.prove.zoo.proofs import Proof, prove_entry, servers, working_directory
from tests.scratch import use_memory


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.prove.zoo", description="Prove handlers whose verdict is known."
    )
    parser.add_argument(
        "names", nargs="*", help="only those whose name begins so: http, redis.incr"
    )
    parser.add_argument("--list", action="store_true", help="name them, and prove none")
    asked = parser.parse_args()
    use_memory()
    with working_directory():
        return _run(parser, asked.names, lists=asked.list)


def _run(parser: argparse.ArgumentParser, names: list[str], *, lists: bool) -> int:
    entries = load(names)
    if not entries:
        parser.error(f"no handler has a name that begins with {' or '.join(names)}: --list")
    if lists:
        for entry in entries:
            print(f"{entry.name}: {entry.expected}. {entry.why}")
        return 0
    with servers(entries):
        wrong = _prove_all(entries)
    print(f"{len(entries) - len(wrong)} of {len(entries)} right")
    for proof in wrong:
        entry = proof.entry
        print(f"  {entry.name}: {', '.join(proof.verdicts)}, and should be {entry.expected}")
        print(f"    {entry.why}")
    return 1 if wrong else 0


def _prove_all(entries: list[Entry]) -> list[Proof]:
    wrong = []
    for number, entry in enumerate(entries, 1):
        began = time.monotonic()
        proof = prove_entry(entry)
        seconds = time.monotonic() - began
        told = "right" if proof.is_right else f"WRONG, expected {entry.expected}"
        verdicts = ", ".join(proof.verdicts)
        print(
            f"[{number} of {len(entries)}] {entry.name}: {verdicts}: {told} ({seconds:.1f} s)",
            flush=True,
        )
        if not proof.is_right:
            wrong.append(proof)
            print(proof.text, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
