"""Handlers with SQLAlchemy, on SQLite."""

from typing import Any

from sqlalchemy import (
    Connection,
    ForeignKey,
    NullPool,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.prove.zoo.entries import expect

engine = create_engine("sqlite:///shop.db")
archive = create_engine("sqlite:///archive.db")
unpooled = create_engine("sqlite:///shop.db", poolclass=NullPool)
beginning = create_engine("sqlite:///shop.db", poolclass=NullPool)


@event.listens_for(beginning, "connect")
def leave_transactions_alone(connection: Any, _: Any) -> None:
    connection.isolation_level = None


@event.listens_for(beginning, "begin")
def begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")
    lines: Mapped[list["Line"]] = relationship(back_populates="order")


class Line(Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(ForeignKey("orders.id"))
    sku: Mapped[str]
    order: Mapped[Order] = relationship(back_populates="lines")


class Processed(Base):
    __tablename__ = "processed"
    id: Mapped[str] = mapped_column(primary_key=True)


class Event(Base):
    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]


class Balance(Base):
    __tablename__ = "balances"
    account: Mapped[str] = mapped_column(primary_key=True)
    cents: Mapped[int]


def make_tables() -> None:
    engine.dispose()  # its connection is to the file of the entry before
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Balance(account="ann", cents=100))
        session.commit()


@expect("doubled", "Each delivery adds a line with a new id.", prepare=make_tables)
def add_a_line(order: str) -> None:
    with Session(engine) as session:
        if session.get(Order, order) is None:
            session.add(Order(id=order))
            session.commit()
        session.add(Line(order_id=order, sku="tea"))
        session.commit()


# Sound was expected at first. But a COMMIT that SQLite refuses, because another one reads, leaves
# the transaction open, and SQLAlchemy puts the connection into its pool as it is. The repeat gets
# that connection, and takes its own row for that of another: without the prover it is the same.
@expect("lost", "A commit that is refused leaves its row, which is taken for a duplicate.",
        prepare=make_tables)  # fmt: skip
def flush_twice(order: str) -> None:
    with Session(engine) as session:
        session.add(Order(id=order))
        try:
            session.flush()
        except IntegrityError:
            session.rollback()
            return
        session.add_all([Line(order_id=order, sku="tea"), Line(order_id=order, sku="mate")])
        session.flush()
        session.commit()


@expect("sound", "`merge` writes the same row again.", prepare=make_tables)
def merge_order(order: str) -> None:
    with Session(engine) as session, session.begin():
        session.merge(Order(id=order, state="paid"))


# Sound was expected at first. But sqlite3 begins no transaction before a SAVEPOINT, so that its
# RELEASE commits the mark, as the documentation of SQLAlchemy says.
@expect("lost", "On SQLite the savepoint is a transaction of its own.", prepare=make_tables)
def nested_mark(order: str) -> None:
    with Session(engine) as session, session.begin():
        try:
            with session.begin_nested():
                session.add(Processed(id=order))
        except IntegrityError:
            return
        session.execute(update(Balance).values(cents=Balance.cents - 10))


@expect("sound", "The transaction begins before the savepoint.", prepare=make_tables)
def nested_mark_in_transaction(order: str) -> None:
    with Session(beginning) as session, session.begin():
        try:
            with session.begin_nested():
                session.add(Processed(id=order))
        except IntegrityError:
            return
        session.execute(update(Balance).values(cents=Balance.cents - 10))


@expect("doubled", "The duplicate is caught, and the debit made all the same.", prepare=make_tables)
def nested_mark_ignored(order: str) -> None:
    with Session(engine) as session, session.begin():
        try:
            with session.begin_nested():
                session.add(Processed(id=order))
        except IntegrityError:
            pass
        session.execute(update(Balance).values(cents=Balance.cents - 10))


@expect("doubled", "It reads the balance, adds in Python, and writes it.", prepare=make_tables)
def read_modify_write(order: str) -> None:
    with Session(engine) as session:
        balance = session.get_one(Balance, "ann")
        balance.cents -= 10
        session.commit()


# Sound was expected at first: see `flush_twice`.
@expect("lost", "A commit that is refused leaves its row, which is taken for a duplicate.",
        prepare=make_tables)  # fmt: skip
def outbox(order: str) -> None:
    with Session(engine) as session:
        try:
            session.add(Order(id=order))
            session.add(Event(order_id=order))
            session.commit()
        except IntegrityError:
            session.rollback()


@expect("sound", "Without a pool nothing is left of a commit that is refused.", prepare=make_tables)
def outbox_without_pool(order: str) -> None:
    with Session(unpooled) as session:
        try:
            session.add(Order(id=order))
            session.add(Event(order_id=order))
            session.commit()
        except IntegrityError:
            session.rollback()


@expect("lost", "The event is written after the commit of its order.", prepare=make_tables)
def outbox_after_commit(order: str) -> None:
    with Session(engine) as session:
        if session.get(Order, order) is not None:
            return
        session.add(Order(id=order))
        session.commit()
        session.add(Event(order_id=order))
        session.commit()


def make_two_files() -> None:
    make_tables()
    archive.dispose()
    with archive.begin() as db:
        db.execute(text("create table archived (id text)"))


@expect("doubled", "Two files are two commits, and the archive has no key.", prepare=make_two_files)
def two_engines(order: str) -> None:
    with Session(engine) as session:
        if session.get(Order, order) is not None:
            return
        with archive.begin() as db:
            db.execute(text("insert into archived values (:id)"), {"id": order})
        session.add(Order(id=order))
        session.commit()


@expect("sound", "Two files are two commits, and both rows have a key.", prepare=make_two_files)
def two_engines_with_keys(order: str) -> None:
    with archive.begin() as db:
        db.execute(text("create unique index if not exists once on archived (id)"))
        db.execute(text("insert or ignore into archived values (:id)"), {"id": order})
    with engine.begin() as db:
        db.execute(upsert(Order).values(id=order, state="new").on_conflict_do_nothing())


@expect("sound", "Core: rowcount says whether the mark is new.", prepare=make_tables)
def core_mark(order: str) -> None:
    with engine.begin() as db:
        if db.execute(upsert(Processed).values(id=order).on_conflict_do_nothing()).rowcount:
            db.execute(update(Balance).values(cents=Balance.cents - 10))


@expect(
    "doubled", "The count is taken, and then a row is added, in autocommit.", prepare=make_tables
)
def autocommit_engine(order: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        if db.scalar(select(func.count()).select_from(Event)) == 0:
            db.execute(insert(Event).values(order_id=order))


@expect("lost", "An error of the database is logged, and the job ends well.", prepare=make_tables)
def errors_are_logged(order: str) -> None:
    import logging

    try:
        with engine.begin() as db:
            db.execute(upsert(Order).values(id=order, state="new").on_conflict_do_nothing())
    except Exception:
        logging.getLogger("shop").info("the order was not written")
