select push_url, push_secrets::text from oncely.queue where name = :name
