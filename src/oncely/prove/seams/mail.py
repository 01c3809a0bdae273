"""Mail: smtplib, which Django sends with too, and aiosmtplib, each where a mail is handed over."""

from __future__ import annotations

import smtplib
import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.watch import Action, Watch, knowing

_LOST: Final = "Connection unexpectedly closed"


def install(watch: Watch, _: Copies) -> None:
    _smtplib(watch)
    if "aiosmtplib" in sys.modules:
        _aiosmtplib(watch)


def _check(watch: Watch, host: str) -> None:
    if not watch.hosts.may_be_called(host):
        watch.refuse(
            f"the handler sends mail through {host}, which is not on this machine: it would be "
            "sent for real, many times. Let it send to a Mailbox, or name the host in "
            "allow_hosts=[…]"
        )


def _meet(watch: Watch, address: str, recipients: Any) -> Action | None:
    judged = address in watch.hosts.judged
    if not judged and address not in watch.hosts.accepted:
        watch.note(
            "unobserved",
            f"mail through {address}: no Mailbox in world= is there, so what was sent was not "
            "compared",
        )
    told = recipients if isinstance(recipients, str) else ", ".join(recipients)
    return watch.pass_by("mail", f"mail to {told}"[:60], judged=judged)


def _smtplib(watch: Watch) -> None:
    smtp: Any = smtplib.SMTP
    connect, sendmail = smtp.connect, smtp.sendmail

    def watched_connect(self: Any, host: str = "localhost", *args: Any, **options: Any) -> Any:
        _check(watch, host.rpartition(":")[0] if host.count(":") == 1 else host)
        with knowing():
            return connect(self, host, *args, **options)

    def watched_sendmail(
        self: Any, from_addr: str, to_addrs: Any, *args: Any, **options: Any
    ) -> Any:
        peer = self.sock.getpeername() if self.sock is not None else ("", 0)
        fault = _meet(watch, f"{peer[0]}:{peer[1]}", to_addrs)
        if fault == "refuse":
            raise smtplib.SMTPDataError(451, b"try again later")
        value = sendmail(self, from_addr, to_addrs, *args, **options)
        if fault is not None:
            self.close()
            raise (
                TimeoutError("timed out")
                if fault == "timeout"
                else (smtplib.SMTPServerDisconnected(_LOST))
            )
        return value

    smtp.connect, smtp.sendmail = watched_connect, watched_sendmail


def _aiosmtplib(watch: Watch) -> None:
    import aiosmtplib

    smtp: Any = aiosmtplib.SMTP
    connect, sendmail = smtp.connect, smtp.sendmail

    async def watched_connect(self: Any, **options: Any) -> Any:
        host = options.get("hostname")
        _check(watch, host if isinstance(host, str) else self.hostname or "localhost")
        with knowing():
            return await connect(self, **options)

    async def watched_sendmail(
        self: Any, sender: str, recipients: Any, *args: Any, **options: Any
    ) -> Any:
        peer = self.transport.get_extra_info("peername") if self.transport else ("", 0)
        fault = _meet(watch, f"{peer[0]}:{peer[1]}", recipients)
        if fault == "refuse":
            raise aiosmtplib.SMTPDataError(451, "try again later")
        value = await sendmail(self, sender, recipients, *args, **options)
        if fault is not None:
            self.close()
            raise (
                aiosmtplib.SMTPReadTimeoutError("timed out")
                if fault == "timeout"
                else aiosmtplib.SMTPServerDisconnected(_LOST)
            )
        return value

    smtp.connect, smtp.sendmail = watched_connect, watched_sendmail
