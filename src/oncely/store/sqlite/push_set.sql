insert into oncely_queue (name, push_url, push_secrets, push_mode)
values (:name, :url, :secrets, :mode)
on conflict (name) do update set
    push_url = excluded.push_url, push_secrets = excluded.push_secrets,
    push_mode = excluded.push_mode
