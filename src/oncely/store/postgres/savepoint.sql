savepoint oncely
