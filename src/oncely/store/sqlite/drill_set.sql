-- Turn the switch. Turned the same way again, it stays with who was first, and there is no row.
insert into oncely_drill_switch (id, stopped, at, by_whom)
select 1, :stopped, c.now, :by_whom from oncely_clock c where true
on conflict (id) do update
set stopped = excluded.stopped, at = excluded.at, by_whom = excluded.by_whom
where stopped <> excluded.stopped
returning 1
