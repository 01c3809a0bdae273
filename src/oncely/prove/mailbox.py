"""`Mailbox`: the other side of SMTP, on loopback. It accepts every mail, and remembers it."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from hashlib import sha256
from typing import Any

import msgspec

from oncely.prove.loopback import LoopbackServer


class Mail(msgspec.Struct, frozen=True):
    """A mail that was accepted. Headers that differ from mail to mail (`Date`, `Message-ID`) are
    left out, and an attachment is its name and a digest."""

    sender: str
    recipients: list[str]
    subject: str
    body: str

    def __str__(self) -> str:
        return f"{self.sender} to {', '.join(self.recipients)}: {self.subject}\n{self.body}".strip()


class Mailbox(LoopbackServer):
    """An SMTP server at `host` and `port`, without encryption; every user name and password is
    right. `address` is both: `127.0.0.1:25001`."""

    memory = "_mails"
    host = "127.0.0.1"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mails: list[Mail] = []
        super().__init__(_Server(self), "mailbox")

    @property
    def mails(self) -> list[Mail]:
        """Those that it has accepted, in order."""
        with self._lock:
            return list(self._mails)

    def snapshot(self) -> list[str]:
        return [str(mail) for mail in self.mails]

    def reset(self) -> None:
        with self._lock:
            self._mails.clear()

    def save(self) -> Any:
        return self.mails

    def load(self, saved: Any) -> None:
        with self._lock:
            self._mails[:] = saved

    def accept(self, sender: str, recipients: list[str], content: bytes) -> None:
        message = message_from_bytes(content, policy=policy.default)
        mail = Mail(sender, recipients, str(message.get("Subject", "")), _body(message))
        with self._lock:
            self._mails.append(mail)


def _body(message: EmailMessage) -> str:
    parts = []
    for part in message.walk():
        if part.is_multipart():
            continue
        content = part.get_payload(decode=True) or b""
        assert isinstance(content, bytes)
        if part.get_content_maintype() == "text" and part.get_filename() is None:
            parts.append(content.decode(errors="replace").strip())
        else:
            parts.append(f"[{part.get_filename()}, {sha256(content).hexdigest()[:16]}]")
    return "\n".join(parts)


class _Server(socketserver.ThreadingTCPServer):
    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        super().__init__(("127.0.0.1", 0), _Session)


class _Session(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self._say("220 mailbox")
        sender, recipients = "", list[str]()
        for line in iter(self._line, None):
            verb, _, rest = line.partition(" ")
            match verb.upper():
                case "EHLO":
                    self._say("250-mailbox", "250-8BITMIME", "250-SMTPUTF8", "250 AUTH PLAIN LOGIN")
                case "AUTH":
                    self._log_in(rest.split())
                case "MAIL":
                    sender, recipients = _address(rest), []
                    self._say("250 OK")
                case "RCPT":
                    recipients.append(_address(rest))
                    self._say("250 OK")
                case "DATA":
                    self._say("354 go on")
                    self.server.mailbox.accept(sender, recipients, self._content())
                    self._say("250 accepted")
                case "QUIT":
                    self._say("221 bye")
                    return
                case "HELO" | "RSET" | "NOOP":
                    self._say("250 OK")
                case _:
                    self._say("502 this is not known here")

    def _line(self) -> str | None:
        line = self.rfile.readline()
        return line.decode(errors="replace").rstrip("\r\n") if line else None

    def _content(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b".\n", b""):
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)

    def _log_in(self, told: list[str]) -> None:
        """PLAIN says all in one line, or after a question; LOGIN asks for both."""
        questions = 2 if told[0].upper() == "LOGIN" else 1
        for question in ("VXNlcm5hbWU6", "UGFzc3dvcmQ6")[len(told) - 1 : questions]:
            self._say(f"334 {question}")
            self._line()
        self._say("235 OK")

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


def _address(rest: str) -> str:
    """Of `FROM:<ann@example.org> SIZE=100`."""
    return rest.partition(":")[2].strip().partition(">")[0].lstrip("<")
