release savepoint oncely
