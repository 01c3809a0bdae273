rollback to savepoint oncely_point;

release savepoint oncely_point
