select push_url, push_secrets from oncely_queue where name = :name
