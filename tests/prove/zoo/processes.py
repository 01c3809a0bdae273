"""Handlers that start programs, processes, threads and tasks."""

import asyncio
import os
import queue
import subprocess
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing

from tests.prove.zoo.entries import expect
from tests.prove.zoo.http import post
from tests.prove.zoo.sqlite import PAYMENTS, connect


def pay(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert or ignore into payments values (?, 990)", (order,))


@expect("refused", "A program could do anything.", schema=PAYMENTS)
def run_git(order: str) -> None:
    subprocess.run(["git", "init", order], check=True)
    pay(order)


@expect("refused", "A shell could do anything.", schema=PAYMENTS)
def run_shell(order: str) -> None:
    pay(order)
    os.system(f"echo {order} >> orders.txt")


@expect("sound", "The program is accepted, and the row has a key.", schema=PAYMENTS,
        options={"accept": ["true"]})  # fmt: skip
def run_accepted(order: str) -> None:
    subprocess.run(["true"], check=True)
    pay(order)


@expect("unobserved", "What another process does is not seen.", schema=PAYMENTS)
def process_pool(order: str) -> None:
    with ProcessPoolExecutor(1) as pool:
        pool.submit(pay, order).result()


@expect("unobserved", "The task is not awaited, and may be alive when the job ends.",
        schema=PAYMENTS, service={"keys": "honoured"})  # fmt: skip
async def task_left_alive(order: str) -> None:
    async def later() -> None:
        await asyncio.sleep(3600)
        post(order, order)

    TASKS.append(asyncio.create_task(later()))
    await asyncio.to_thread(pay, order)


TASKS: list[asyncio.Task[None]] = []


@expect("unobserved", "The thread takes orders from a queue, and lives on.", schema=PAYMENTS)
def thread_left_alive(order: str) -> None:
    # At first a payment that failed ended the thread, and the handler waited for ever: stuck.
    orders: queue.Queue[str] = queue.Queue()
    errors: queue.Queue[Exception | None] = queue.Queue()

    def work() -> None:
        while True:
            try:
                pay(orders.get())
                errors.put(None)
            except Exception as error:
                errors.put(error)

    threading.Thread(target=work, daemon=True).start()
    orders.put(order)
    if (error := errors.get()) is not None:
        raise error


@expect("sound", "The thread is joined, and the row has a key.", schema=PAYMENTS)
def thread_joined(order: str) -> None:
    thread = threading.Thread(target=pay, args=(order,))
    thread.start()
    thread.join()
    with closing(connect()) as db:
        if not db.execute("select 1 from payments").fetchone():
            raise RuntimeError("the thread has failed")


@expect("lost", "The exception of a thread reaches nobody.", schema=PAYMENTS)
def thread_fails_alone(order: str) -> None:
    def quietly() -> None:
        try:
            pay(order)
        except Exception as error:
            print("the payment failed", error)

    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join()


@expect("sound", "A time-out around the payment cancels nothing that a repeat does not do.",
        schema=PAYMENTS)  # fmt: skip
async def with_timeout(order: str) -> None:
    async with asyncio.timeout(30):
        await asyncio.to_thread(pay, order)
