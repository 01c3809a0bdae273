"""schemathesis against the server's own document: no 5xx, no answer that it does not describe.

A few hundred cases in every run; under $ONCELY_TORTURE more than 10,000 on each engine.
"""

import re
import subprocess
import sys
from pathlib import Path

from oncely import Oncely
from oncely.model.token import SCOPES
from tests.crash.load import TORTURE
from tests.surface.command import environment
from tests.surface.http.server import as_process

SCRIPT = Path(sys.executable).parent / "schemathesis"
FOLDER = Path(__file__).parent
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "ignored_auth,unsupported_method,use_after_free"
)
PHASES = "examples,fuzzing,stateful" if TORTURE == 1 else "examples,coverage,fuzzing,stateful"
EXAMPLES = 5 if TORTURE == 1 else 400
CHANCE = ["--seed", "1"] if TORTURE == 1 else []
LEAST = 100 if TORTURE == 1 else 10_000


def test_every_answer_is_as_the_document_says(url: str, app: Oncely, tmp_path: Path) -> None:
    key = app.create_token(SCOPES).key
    with as_process(url, "--no-access-log") as server:
        done = subprocess.run(
            [
                SCRIPT, "run", f"{server.url}/openapi.json", "--no-color",
                "--header", f"Authorization: Bearer {key}",
                "--checks", CHECKS, "--phases", PHASES, "--max-examples", str(EXAMPLES),
                "--continue-on-failure", "--generation-database", "none",
                "--suppress-health-check", "all", "--request-timeout", "60", *CHANCE,
            ],
            cwd=tmp_path,
            env=environment(SCHEMATHESIS_HOOKS="fuzz_hooks", PYTHONPATH=str(FOLDER)),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        log = server.end(15)[1]
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{log[-5_000:]}"
    cases = re.search(r"(\d+) generated", done.stdout)
    assert cases is not None, done.stdout
    print(f"{cases[1]} cases")
    assert int(cases[1]) >= LEAST
