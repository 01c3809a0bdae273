select 1 where to_regclass('oncely.ledger_migration') is not null
