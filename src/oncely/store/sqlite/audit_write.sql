-- An act on many jobs has one entry, which counts them; only whoever began it adds to it.
insert into oncely_audit (id, at, by_whom, act, about, name, note, count, details)
select :id, c.now, :by_whom, :act, :about, :name, :note, :count, :details
from oncely_clock c where true
on conflict (id) do update set count = oncely_audit.count + excluded.count
where oncely_audit.by_whom = excluded.by_whom and oncely_audit.act = excluded.act
    and excluded.count is not null
