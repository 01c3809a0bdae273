"""What a run of the demo has shown, and what not; the numbers are those of the table."""

from __future__ import annotations

from textwrap import fill

from oncely.surface.cli.demo.screen import count
from oncely.surface.cli.demo.tally import Tally


def moral(result: Tally) -> str:
    doors = (_enqueue(result), _delivery(result), _step(result), _verified(result), _held(result))
    return "\n" + "\n\n".join(fill(text, 78) for text in doors)


def _enqueue(result: Tally) -> str:
    text = f"Enqueue: {result.orders} orders, {result.inserted} jobs. "
    if result.unheard:
        text += f"The killed publisher had stored {count(result.unheard, 'jobs')} and told nobody. "
    return text + "What got no answer was published again, and the keys recognised each repeat."


def _delivery(result: Tally) -> str:
    again = result.executions - result.inserted
    return (
        f"Delivery: {result.executions} executions for {result.inserted} jobs. At least once: "
        f"{again} were delivered again, and each job was settled once."
    )


def _step(result: Tally) -> str:
    return (
        f"step, with a key: {result.charges} charges, asked for {result.charges_asked} times. "
        "Exactly once, for as long as the other side remembers the key."
    )


def _verified(result: Tally) -> str:
    return (
        "fence, with verify: a mail takes no key, but one can ask. The service was asked "
        f"{result.questions} times. Verified, not exactly once: a sender that only "
        "slept, and was not dead, could still wake up."
    )


def _held(result: Tally) -> str:
    return (
        "fence, without verify: at most once, and where nobody knows, the job is held and the "
        f"doubt is shown. {result.held} jobs waited until somebody had looked in the "
        "mailbox, and then went on."
    )
