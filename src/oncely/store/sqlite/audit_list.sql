select a.id, a.at, a.by_whom, a.act, a.about, a.name, a.note, a.count, a.details
from oncely_audit a
where a.id < :before
    and (:about is null or a.about = :about)
    and (:by_whom is null or a.by_whom = :by_whom)
order by a.id desc limit :limit
