"""The verbs of flow: limits and pauses of queues and groups, and the policy of queues."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from oncely.flow.push_target import check_target
from oncely.model.draft import check_name, check_timeout
from oncely.model.errors import InvalidInput
from oncely.model.flow import Group, Queue, Rate, check_concurrency, check_rate
from oncely.model.keys import check_key, shown
from oncely.model.push import Push, check_push
from oncely.model.retry import Retry
from oncely.store import limits
from oncely.store.limits import Change, Scope
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin


class Flowing(Base):
    def set_queue(
        self,
        queue: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        rate: Rate | UnsetType | None = UNSET,
        retry: Retry | UnsetType | None = UNSET,
        timeout: float | UnsetType | None = UNSET,
        require_key: bool | UnsetType = UNSET,
        push: Push | UnsetType | None = UNSET,
    ) -> None:
        """Set the policy of a queue, for the whole fleet. What is not named stays as it is; None
        lifts it. It holds for every claim from now on.

        - `concurrency`: so many of its jobs run at once, over all workers, and never one more.
        - `rate`: (count, seconds): so many executions begin in that time, the first `count` of
          them at once.
        - `retry`, `timeout`: for the jobs whose kind does not say, and who do not say themselves.
        - `require_key`: over HTTP, refuse to enqueue without an idempotency key.
        - `push`: a `Push(url, secret=…, mode=…)`: the server sends the jobs there, and no worker
          takes them. PushRefused if the URL leads to an address that is not public.
        """
        check_name(queue, "queue")
        if retry is not UNSET and retry is not None and not isinstance(retry, Retry):
            raise InvalidInput(
                f"retry is {shown(retry)}; expected Retry(max_attempts=…, …) or None"
            )
        if isinstance(retry, Retry) and (retry.on or retry.never_on):
            raise InvalidInput(
                "retry has on= or never_on=, which name classes of your code: give them to the "
                "handler, @app.job(kind, retry=Retry(…)). A queue cannot keep them"
            )
        if require_key is not UNSET and not isinstance(require_key, bool):
            raise InvalidInput(f"require_key is {shown(require_key)}; expected True or False")
        # Over HTTP that is the server's to say: it sends, and sees other addresses than we do.
        if isinstance(push, Push) and not self.url.startswith(("http://", "https://")):
            check_target(push.url)
        given = {
            "concurrency": concurrency,
            "rate": rate,
            "retry": retry,
            "timeout": timeout,
            "require_key": require_key,
            "push": push,
        }
        self._change(
            "queue",
            queue,
            Change(
                frozenset(name for name, value in given.items() if value is not UNSET),
                concurrency=None if concurrency is UNSET else check_concurrency(concurrency),
                rate=None if rate is UNSET else check_rate(rate),
                retry=None if retry is UNSET else retry,
                timeout_seconds=None if timeout is UNSET else check_timeout(timeout),
                require_key=None if require_key is UNSET else require_key,
                push=None if push is UNSET else check_push(push),
            ),
        )

    def set_group(
        self,
        key: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        rate: Rate | UnsetType | None = UNSET,
    ) -> None:
        """Limit the jobs with this `group_key`, in whatever queue they are. The options are those
        of `set_queue`."""
        check_key(key, "group_key")
        given = {"concurrency": concurrency, "rate": rate}
        self._change(
            "group",
            key,
            Change(
                frozenset(name for name, value in given.items() if value is not UNSET),
                concurrency=None if concurrency is UNSET else check_concurrency(concurrency),
                rate=None if rate is UNSET else check_rate(rate),
            ),
        )

    def pause(self, queue: str | None = None, *, group: str | None = None) -> None:
        """Begin no more jobs of a queue, or of a group; those that run come to their end, and new
        ones are taken in. Pausing it again changes nothing."""
        self._pause(queue, group, paused=True)

    def resume(self, queue: str | None = None, *, group: str | None = None) -> None:
        """Undo `pause`."""
        self._pause(queue, group, paused=False)

    def queues(self) -> list[Queue]:
        """The queues that have jobs, limits or a policy, by name."""
        return self._engine.run(lambda _: limits.queues(), "read")

    def groups(self) -> list[Group]:
        """The groups that have a limit or a pause, by key."""
        return self._engine.run(lambda _: limits.groups(), "read")

    def _pause(self, queue: str | None, group: str | None, *, paused: bool) -> None:
        change = Change(frozenset({"paused"}), paused=paused)
        if queue is not None and group is None:
            self._change("queue", check_name(queue, "queue"), change)
        elif group is not None and queue is None:
            check_key(group, "group_key")
            self._change("group", group, change)
        else:
            raise InvalidInput("expected the name of a queue, or group=… with the key of a group")

    def _change(self, scope: Scope, name: str, change: Change) -> None:
        if not change.given:
            raise InvalidInput(f"nothing is set for {scope} {name!r}; expected at least one option")
        who = trail()
        self._engine.run(lambda _: limits.change(scope, name, change, trail=who), "transaction")

    aset_queue = twin(set_queue, own_thread=True)  # it may wait for a name server
    aset_group = twin(set_group)
    apause = twin(pause)
    aresume = twin(resume)
    aqueues = twin(queues)
    agroups = twin(groups)
