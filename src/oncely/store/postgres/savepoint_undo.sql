rollback to savepoint oncely;

release savepoint oncely
