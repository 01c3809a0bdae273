select state, held_until > utc_timestamp(6) from oncely_ledger where name = :name for update
