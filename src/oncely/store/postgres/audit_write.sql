-- An act on many jobs has one entry, which counts them; only whoever began it adds to it.
insert into oncely.audit as a (id, at, by_whom, act, about, name, note, count, details)
values (cast(:id as uuid), clock_timestamp(), :by_whom, :act, :about, :name, cast(:note as text),
    cast(:count as integer), cast(cast(:details as text) as json))
on conflict (id) do update set count = a.count + excluded.count
where a.by_whom = excluded.by_whom and a.act = excluded.act and excluded.count is not null
