update oncely_ledger set held_until = utc_timestamp(6) + interval :lease_us microsecond
where name = :name and holder = :owner and state <> 'done'
