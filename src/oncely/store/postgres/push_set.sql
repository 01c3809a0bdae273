insert into oncely.queue (name, push_url, push_secrets, push_mode)
values (:name, cast(:url as text), cast(cast(:secrets as text) as json), cast(:mode as text))
on conflict (name) do update set
    push_url = excluded.push_url, push_secrets = excluded.push_secrets,
    push_mode = excluded.push_mode
