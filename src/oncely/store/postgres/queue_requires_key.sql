select require_key from oncely.queue where name = :name
