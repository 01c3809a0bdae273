-- Only if nobody has set others meanwhile.
update oncely.queue set push_secrets = cast(cast(:secrets as text) as json)
where name = :name and push_secrets::text = cast(:before as text)
