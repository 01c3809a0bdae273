select require_key from oncely_queue where name = :name
