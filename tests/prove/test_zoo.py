"""One handler of the zoo for each large kind of verdict; `make torture` proves all of them."""

from pathlib import Path

import pytest

from tests.prove.zoo.entries import load
from tests.prove.zoo.proofs import prove_entry


@pytest.mark.parametrize(
    "name",
    [
        "sqlite.swallow_duplicates",
        "sqlite.add_points",
        "sqlite.swallow_all_database_errors",
        "sqlite.forget_to_commit",
        "folders.move_file",
        "processes.run_shell",
    ],
)
def test_a_handler_gets_its_verdict(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [entry] = load([name])
    proof = prove_entry(entry)
    assert proof.is_right, proof.text
