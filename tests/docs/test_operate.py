"""The files that run it in production say what this version understands."""

import inspect
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclopts import CycloptsError
from packaging.requirements import Requirement

from oncely.surface.cli.program import build
from oncely.surface.cli.serve import serve
from oncely.surface.cli.worker import worker
from oncely.surface.http.table import TABLE

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((ROOT / "compose.yaml").read_text())
UNITS = sorted((ROOT / "deploy").glob("*.service"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def command_of_image() -> list[str]:
    found = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    told: list[str] = yaml.safe_load(found[1])
    return told


def commands() -> list[list[str]]:
    """What follows `oncely` wherever one of the files runs it."""
    found = [command_of_image()]
    found += [each["command"] for each in COMPOSE["services"].values() if "command" in each]
    for unit in UNITS:
        lines = re.findall(r"^ExecStart(?:Pre)?=\S+/oncely (.*)$", unit.read_text(), re.MULTILINE)
        assert lines, unit.name
        found += [shlex.split(line.replace("%i", "shop.jobs:app")) for line in lines]
    return found


def test_every_command_is_understood() -> None:
    for command in commands():
        build().parse_args(command, exit_on_error=False, print_error=False)
    with pytest.raises(CycloptsError):
        build().parse_args([*command, "--nonsense"], exit_on_error=False, print_error=False)


def test_the_image_is_made_of_what_is_here() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"pyproject.toml", "src"} <= set(names)
    lines = (ROOT / ".dockerignore").read_text().split()
    let_in = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in names:
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in let_in), f"{name} is ignored"
    [version] = set(re.findall(r"^FROM python:(\d+\.\d+)\.", DOCKERFILE, re.MULTILINE))
    classifier = f"Programming Language :: Python :: {version}"
    assert classifier in PROJECT["project"]["classifiers"]


def test_images_are_pinned_by_digest() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(images) == 2
    images += [each["image"] for each in COMPOSE["services"].values() if "build" not in each]
    for image in images:
        assert re.fullmatch(r"\w+:\d+\.[\w.-]+@sha256:[0-9a-f]{64}", image), image


def pinned(name: str) -> dict[str, str]:
    """The version of each package; every one has hashes."""
    lines = (ROOT / "deploy" / name).read_text().replace("\\\n", " ").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    found = {}
    for line in wanted:
        requirement = re.match(
            r"([\w.-]+)==(\S+)(?: ;[^-]*)?(?: +--hash=sha256:[0-9a-f]{64})+$", line
        )
        assert requirement is not None, line
        found[requirement[1]] = requirement[2]
    return found


def test_the_packages_of_the_image_are_pinned_by_hash() -> None:
    assert DOCKERFILE.count("--require-hashes") == 2
    found = pinned("requirements.txt")
    extras = re.findall(r"--extra (\w+)", (ROOT / "deploy" / "requirements.txt").read_text())
    assert "server" in extras
    wanted = [*PROJECT["project"]["dependencies"]]
    for extra in extras:
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.specifier.contains(found[requirement.name]), text
    [build] = map(Requirement, PROJECT["build-system"]["requires"])
    assert build.specifier.contains(pinned("requirements-build.txt")[build.name])


def test_the_image_runs_without_rights_and_is_asked_for_what_is_there() -> None:
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", DOCKERFILE, re.MULTILINE)
    [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/[a-z]+)", DOCKERFILE)
    assert command_of_image()[-1] == port
    open_paths = {each.path for each in TABLE if each.method == "GET" and each.scope is None}
    assert path in open_paths


def test_whoever_stops_them_waits_longer_than_they_do() -> None:
    longest = max(
        inspect.signature(each).parameters["grace_seconds"].default for each in (serve, worker)
    )
    waits = re.findall(r"(\d+)s?$", str(COMPOSE["services"]["server"]["stop_grace_period"]))
    for unit in UNITS:
        waits += re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
        assert re.search(r"^KillMode=mixed$", unit.read_text(), re.MULTILINE), unit.name
    assert len(waits) == 1 + len(UNITS)
    assert min(map(int, waits)) > longest


def test_nothing_but_the_store_can_be_reached_without_being_told() -> None:
    services = COMPOSE["services"]
    assert "ports" not in services["postgres"]
    assert all(port.startswith("127.0.0.1:") for port in services["server"]["ports"])


HARDENED = {
    "UMask": "0077",
    "StateDirectoryMode": "0750",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "RestrictRealtime": "yes",
    "LockPersonality": "yes",
    "SystemCallArchitectures": "native",
}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_a_unit_is_hardened(unit: Path) -> None:
    options = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    assert {name: options.get(name) for name in HARDENED} == HARDENED
