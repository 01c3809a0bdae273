-- Turn the switch. Turned the same way again, it stays with who was first, and there is no row.
insert into oncely.drill_switch as s (id, stopped, at, by_whom)
values (1, :stopped, clock_timestamp(), :by_whom)
on conflict (id) do update
set stopped = excluded.stopped, at = excluded.at, by_whom = excluded.by_whom
where s.stopped <> excluded.stopped
returning 1
