select a.id::text, (extract(epoch from a.at) * 1000000)::bigint, a.by_whom, a.act, a.about, a.name,
    a.note, a.count, a.details::text
from oncely.audit a
where a.id < cast(:before as uuid)
    and (cast(:about as text) is null or a.about = cast(:about as text))
    and (cast(:by_whom as text) is null or a.by_whom = cast(:by_whom as text))
order by a.id desc limit :limit
