"""The arguments of effects: by position, by name and bound by a partial; and declared effects."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from oncely import Context, Fence, InvalidInput, Ledger, Oncely, Step
from oncely.model.effect import described, unpack_partial
from tests.engine.stage import Stage, World
from tests.engine.steps import found, sql


class NamedWorld(World):
    def do(self, *args: Any, **kwargs: Any) -> Any:
        self.done.append((args, kwargs))
        return {"n": len(self.done)}

    async def ado(self, *args: Any, **kwargs: Any) -> Any:
        return self.do(*args, **kwargs)


def arguments(app: Oncely) -> list[Any]:
    return [text for (text,) in sql(app, "select arguments from oncely.effect order by name")]


def test_keyword_arguments_go_to_the_function_and_are_shown(app: Oncely, stage: Stage) -> None:
    world = NamedWorld()

    def body(ctx: Context) -> Any:
        yield ctx.step("a", world.do, 49, currency="eur", name="ann", key_ttl=60)
        yield ctx.fence("b", world.do, to="ann", function="f", verify=world.do, in_doubt="retry")

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert world.done == [
        ((49,), {"currency": "eur", "name": "ann"}),
        ((), {"to": "ann", "function": "f"}),
    ]
    assert [effect.arguments for effect in job.effects] == arguments(app)
    assert arguments(app) == [
        '{"args":[49],"kwargs":{"currency":"eur","name":"ann"}}',
        '{"args":[],"kwargs":{"function":"f","to":"ann"}}',
    ]


def test_async_functions_take_keyword_arguments_too(app: Oncely) -> None:
    world = NamedWorld()

    @app.job("k")
    async def handle(ctx: Context) -> Any:
        return await ctx.step("a", world.ado, 1, cents=2)

    job_id = app.enqueue("k").job_id
    app.drain()
    assert found(app, job_id).result == {"n": 1}
    assert world.done == [((1,), {"cents": 2})]


def test_verify_gets_the_arguments_of_the_call(app: Oncely, stage: Stage) -> None:
    asked = []

    def send(*args: Any, **kwargs: Any) -> None:
        raise TimeoutError("no answer")

    def find(*args: Any, **kwargs: Any) -> str:
        asked.append((args, kwargs))
        return "found"

    def body(ctx: Context) -> Any:
        yield ctx.fence("named", send, "ann", subject="hello", verify=find)
        yield ctx.fence("bound", partial(send, "bound"), "ann", verify=find)

    stage.handler(body)
    assert stage.run().state == "completed"
    assert asked == [(("ann",), {"subject": "hello"}), (("ann",), {})]


@pytest.mark.parametrize(
    "change",
    [
        lambda world, cents: (world.do, (), {"cents": cents}),
        lambda world, cents: (partial(world.do, cents), (), {}),
        lambda world, cents: (partial(world.do, cents=cents), (), {}),
        lambda world, cents: (partial(partial(world.do, "eur"), cents=cents), ("ann",), {}),
    ],
    ids=["keyword", "bound", "bound by name", "nested"],
)
def test_an_amount_that_changed_between_attempts_is_a_mismatch(
    app: Oncely, stage: Stage, change: Any
) -> None:
    world = NamedWorld()

    def body(ctx: Context) -> Any:
        function, args, kwargs = change(world, 100 * ctx.attempt)
        yield ctx.step("charge", function, *args, **kwargs)
        raise ValueError("after the charge")

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "EffectMismatch")
    assert len(world.done) == 1


def test_equal_arguments_have_equal_fingerprints() -> None:
    def send(*args: Any) -> None: ...

    plain = described((1, "a"))
    assert plain == described((1, "a"), {})
    assert plain[1] == '[1,"a"]'
    assert described((), {"a": 1, "b": 2}) == described((), {"b": 2, "a": 1})
    assert described(*unpack_partial(partial(send, 1), ("a",), {})) == plain
    assert described((), {"a": 1})[0] != described(({"a": 1},))[0]


def test_the_fingerprint_of_plain_arguments_is_that_of_released_versions() -> None:
    assert described(())[0] == "1:3e83f638186c2a3a7e3989633b4da833"
    assert described((49, "eur", {"a": [1.5, None]}))[0] == "1:4503736b00b6985e1310863ecddd4112"


def test_a_partial_on_record_from_before_is_recognised(app: Oncely, stage: Stage) -> None:
    """Earlier versions kept the fingerprint of what the call gave, without what was bound."""
    world = NamedWorld()

    def body(ctx: Context) -> Any:
        yield ctx.step("charge", partial(world.do, 100), "ann")
        if ctx.attempt == 1:
            before, _ = described(("ann",))
            sql(app, "update oncely.effect set fingerprint = :before", before=before)
            raise ValueError("again")

    stage.handler(body)
    assert stage.run().state == "completed"
    assert world.done == [((100, "ann"), {})]


def test_declared_effects_stand_for_their_names(app: Oncely, stage: Stage) -> None:
    world = NamedWorld()
    charge = Step("charge", key_ttl=3600)
    mail = Fence("mail", in_doubt="retry", not_done=ValueError)

    def body(ctx: Context) -> Any:
        yield ctx.step(charge, world.do, ctx.key(charge))
        yield ctx.fence(mail, world.do, "ann")
        yield ctx.step(Step("index"), world.do, key_ttl=60)
        yield ctx.fence(Fence("note"), world.do, verify=world.do)

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed", job.error
    assert world.done[0] == ((f"{job.job_id}:charge",), {})
    assert sorted(effect.name for effect in job.effects) == ["charge", "index", "mail", "note"]


def test_a_declared_effect_is_a_frozen_value() -> None:
    assert Step("charge", was="payment") == Step("charge", was=["payment"])
    assert {Step("a"), Step("a"), Fence("a")} == {Step("a"), Fence("a")}
    with pytest.raises(AttributeError):
        Step("a").name = "b"  # type: ignore[misc]


def test_a_declaration_is_checked() -> None:
    makes: list[Callable[[], Any]] = [
        lambda: Step(""),
        lambda: Step("a", key_ttl=0),
        lambda: Step("a", was="a"),
        lambda: Step("a", was=["b", "b"]),
        lambda: Step("a", was=7),  # type: ignore[arg-type]
        lambda: Fence("a", verify="find"),  # type: ignore[arg-type]
        lambda: Fence("a", in_doubt="maybe"),  # type: ignore[arg-type]
        lambda: Fence("a", not_done="ValueError"),  # type: ignore[arg-type]
        lambda: Fence("a", not_done=int),  # type: ignore[arg-type]
    ]
    for make in makes:
        with pytest.raises(InvalidInput):
            make()


WRONG_CALLS: dict[str, Callable[[Any], Any]] = {
    "a Step; got Fence": lambda ctx: ctx.step(Fence("a"), print),
    "a Fence; got Step": lambda ctx: ctx.fence(Step("a"), print),
    "name of the effect or a Step": lambda ctx: ctx.step(7, print),
    "key_ttl is given in": lambda ctx: ctx.step(Step("a", key_ttl=1), print, key_ttl=1),
    "in_doubt is given in": lambda ctx: ctx.fence(
        Fence("a", in_doubt="hold"), print, in_doubt="retry"
    ),
    "step has no option verify, fence has": lambda ctx: ctx.step("a", print, verify=print),
    "fence has no option key_ttl, step has": lambda ctx: ctx.fence("a", print, key_ttl=1),
    "not_done is 'no'": lambda ctx: ctx.fence("a", print, not_done="no"),
    "the name of the effect": lambda ctx: ctx.key(7),
}


def test_wrong_calls_say_what_is_wrong(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        for told, call in WRONG_CALLS.items():
            try:
                yield call(ctx)
            except InvalidInput as error:
                stage.seen.append(told if told in str(error) else str(error))
            yield None

    stage.handler(body)
    assert stage.run().state == "completed"
    assert stage.seen == [*WRONG_CALLS]
    assert sql(app, "select * from oncely.effect") == []


def test_a_ledger_takes_them_too(tmp_path: Any) -> None:
    world = NamedWorld()
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    try:
        assert ledger.step("a", world.do, 1, key="b", key_ttl=60) == {"n": 1}
        assert ledger.step("a", partial(world.do, 1), key="b") == {"n": 1}
        assert ledger.fence(Fence("f", verify=world.do), world.do, to="ann") == {"n": 2}
        assert ledger.step(Step("s", key_ttl=60), world.do) == {"n": 3}
        with pytest.raises(InvalidInput, match="by its key alone"):
            ledger.step(Step("s", was="r"), world.do)
        with pytest.raises(InvalidInput, match="has no option colour"):
            ledger.idempotent(key=str, colour="red")
        assert world.done == [((1,), {"key": "b"}), ((), {"to": "ann"}), ((), {})]
    finally:
        ledger.close()
