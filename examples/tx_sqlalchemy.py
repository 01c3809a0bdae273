"""An order and its job in one transaction, with SQLAlchemy: both are stored, or neither.

Run: python examples/tx_sqlalchemy.py postgresql://localhost/shop    (or sqlite:///shop.db)
"""

import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncely import Oncely, key


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


engine = create_engine(sys.argv[1].replace("postgresql:", "postgresql+psycopg:"))
Base.metadata.create_all(engine)
app = Oncely(sys.argv[1])  # the jobs live in the database that the orders live in
app.migrate()
for number, cents in ((1, 990), (1, 990), (2, 0)):  # the second: a button clicked twice
    try:
        with Session(engine) as session, session.begin():  # commits at the end
            session.merge(Order(id=number, cents=cents))
            once = key("order", number, "charge")
            receipt = app.enqueue("order.charge", number, idempotency_key=once, tx=session)
            if cents <= 0:
                raise ValueError("nothing to charge")
        print(f"order {number}:", "job enqueued" if receipt.inserted else "was placed before")
    except ValueError as error:
        print(f"order {number}: rolled back, {error}")
engine.dispose()
app.close()
