select
    json_extract(i.value, '$.id'), k.job_id, k.fingerprint, coalesce(s.state, k.state),
    coalesce(k.expires_at <= (select now from oncely_clock), 0),
    k.lent and exists (
        select 1 from oncely_unique_key u
        where u.kind = json_extract(i.value, '$.kind')
            and u.key = json_extract(i.value, '$.unique_key') and u.job_id = k.job_id
    )
from json_each(:doc) i
join oncely_idempotency_key k
    on k.queue = json_extract(i.value, '$.queue')
    and k.key = json_extract(i.value, '$.idempotency_key')
left join oncely_standing s on s.job_id = k.job_id
