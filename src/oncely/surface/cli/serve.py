"""`oncely serve`: the HTTP server, in one process or several."""

from __future__ import annotations

import os
import socket
import sys
from typing import Annotated, Final

from cyclopts import Parameter

from oncely.flow.push_target import allowed_networks
from oncely.model.errors import InvalidInput
from oncely.store.secret_key import check_secret_key
from oncely.surface.app import Oncely
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen
from oncely.surface.cli.worker import fleet, log_to_stderr

_LISTENING: Final = "ONCELY_LISTENING_FD"
"""Between the processes of one server: the socket that they share."""
_LARGEST_BYTES: Final = 1024 * 1024 * 1024


def serve(
    *,
    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="0 takes a free one.")] = 8000,
    processes: Annotated[int, Parameter(metavar="N", help="So many processes.")] = 1,
    open_to_everyone: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Listen on any address though the store has no token or user: no key is needed.",
        ),
    ] = False,
    trusted_proxy: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="CIDR",
            negative="",
            help="A proxy that is believed about its clients' addresses; may be repeated.",
        ),
    ] = (),
    requests_per_second: Annotated[
        float, Parameter(metavar="N", help="Of one key, in each process; more get a 429.")
    ] = 10_000.0,
    max_body_bytes: Annotated[int, Parameter(metavar="N", help="A larger body is refused.")] = 2
    * 1024
    * 1024,
    max_batch_bytes: Annotated[
        int, Parameter(metavar="N", help="The same for a batch of jobs.")
    ] = 16 * 1024 * 1024,
    grace_seconds: Annotated[
        float, Parameter(metavar="S", help="What running requests get when it is told to stop.")
    ] = 30.0,
    access_log: Annotated[
        bool, Parameter(negative="--no-access-log", help="A line for each request.")
    ] = True,
    redact: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            negative="",
            env_var="ONCELY_REDACT",
            help="A field that the dashboard never shows; may be repeated.",
        ),
    ] = (),
    options: Options = DEFAULTS,
) -> int:
    """Serve the HTTP API and the dashboard until SIGTERM or SIGINT.

    It listens on this machine only, unless --host says otherwise; then the store
    must have a token (`oncely token create`). A first signal lets running requests
    end, a second one does not wait. What happens is logged on standard error.

        $ oncely serve
        $ oncely serve --host 0.0.0.0 --port 8080 --processes 4
    """
    _check("--processes", processes, 1, 1_000)
    _check("--port", port, 0, 65_535)
    _check("--requests-per-second", requests_per_second, 0.01, 1e9)
    _check("--max-body-bytes", max_body_bytes, 1, _LARGEST_BYTES)
    _check("--max-batch-bytes", max_batch_bytes, 1, _LARGEST_BYTES)
    _check("--grace-seconds", grace_seconds, 0, 86_400)
    try:
        from oncely.surface.http.run import address_of, is_loopback, listen, run
        from oncely.surface.http.service import Service, Settings
        from oncely.surface.http.trusted_proxies import networks
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("oncely"):
            raise
        raise InvalidInput(
            f"the server needs the package {error.name}: pip install 'oncely[server]'"
        ) from None
    allowed_networks()
    check_secret_key()
    settings = Settings(
        max_body_bytes=max_body_bytes,
        max_batch_bytes=max_batch_bytes,
        requests_per_second=requests_per_second,
        open_to_everyone=open_to_everyone,
        trusted_proxies=networks(trusted_proxy),
        redact=redact,
    )
    quiet = ("uvicorn.error",) if access_log else ("uvicorn.error", "oncely.access")
    inherited = os.environ.get(_LISTENING)
    if inherited is not None:
        log_to_stderr(as_json=options.json, quiet=quiet)
        with opened(options) as app, socket.socket(fileno=int(inherited)) as listening:
            run(Service(app, settings), listening, grace_seconds=grace_seconds)
        return 0
    with opened(options, create=True) as app:
        known = bool(app.tokens() or app.users())
        with listen(host, port) as listening:
            if not (known or open_to_everyone or is_loopback(listening)):
                raise InvalidInput(
                    f"{host} can be reached from other machines, and the store has neither a "
                    "token nor a user: make one with `oncely token create --scope publish,read` or "
                    "`oncely user create NAME --role operator`, or say --open-to-everyone"
                )
            _announce(address_of(listening), options)
            if processes == 1:
                log_to_stderr(as_json=options.json, quiet=quiet)
                run(Service(app, settings), listening, grace_seconds=grace_seconds)
                return 0
            _let_go(app)
            return _share(listening, processes)


def _share(listening: socket.socket, processes: int) -> int:
    number = listening.fileno()
    return fleet(processes, env={**os.environ, _LISTENING: str(number)}, pass_fds=(number,))


def _let_go(app: Oncely) -> None:
    """The processes have stores of their own."""
    app.close()


def _announce(address: str, options: Options) -> None:
    if options.json:
        answer({"url": address, "pid": os.getpid()})
    else:
        screen().print(f"listening on {address}, dashboard at {address}/dashboard")
    sys.stdout.flush()


def _check(option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(f"{option} is {value:g}; expected a number from {least:g} to {most:g}")
