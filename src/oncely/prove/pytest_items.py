"""`pytest --oncely-prove MODULE:APP`: a test for each kind of an app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from oncely.model.errors import InvalidInput
from oncely.prove.explore import prove
from oncely.prove.report import Report
from oncely.prove.subjects import Proof, load_target, load_world, proofs_of_all
from oncely.prove.world import WorldItem


def proof_items(session: pytest.Session, place: str) -> list[pytest.Item]:
    option = session.config.getoption
    try:
        proofs = proofs_of_all(load_target(place), place, option("--oncely-payloads"))
        world = load_world(option("--oncely-world"))
    except InvalidInput as error:
        raise pytest.UsageError(f"--oncely-prove: {error}") from error
    return [
        ProofItem.from_parent(session, name=f"prove[{each.kind}]", proof=each, world=world)
        for each in proofs
    ]


class ProofItem(pytest.Item):
    def __init__(self, *, proof: Proof, world: Sequence[WorldItem], **given: Any) -> None:
        super().__init__(**given)
        self._proof = proof
        self._world = world

    def runtest(self) -> None:
        proof = self._proof
        report = prove(
            proof.target, proof.kind, proof.payload, world=self._world, **proof.options()
        )
        if not report.ok:
            raise NotProved(report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotProved):
            return str(excinfo.value.report)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


class NotProved(Exception):
    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(str(report))
