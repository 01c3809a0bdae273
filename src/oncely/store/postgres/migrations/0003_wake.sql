-- Who rests holds a shared session lock on the key of each topic it wants to hear of. NOTIFY makes
-- commits stand in line, so it is sent only where such a lock is held. All of these are plain
-- expressions, which the planner puts into the statement that calls them.
create function oncely.topic_key(topic text) returns bigint language sql immutable
    as $$ select hashtextextended(('oncely ' || topic) collate "C", 0) $$;

create function oncely.channel() returns text language sql immutable
    as $$ select 'oncely_' || md5('oncely') $$;

-- Taken and given back within one expression, with nothing in between that could fail or wait. Two
-- that ask at the very same moment may take each other for a listener: then one NOTIFY is in vain.
create function oncely.is_awaited(key bigint) returns boolean language sql volatile
    as $$ select case when pg_try_advisory_lock(key) then not pg_advisory_unlock(key) else true end $$;

-- A job can be had in this queue now. True if somebody is told, once the transaction commits.
create function oncely.wake(queue text) returns boolean language sql volatile
    as $$
        select case
            when oncely.is_awaited(oncely.topic_key('queue'))
                or oncely.is_awaited(oncely.topic_key('queue:' || queue))
            then pg_notify(oncely.channel(), 'queue:' || queue)::text is not null
            else false
        end
    $$;

-- These jobs came to rest. Their ids are named while they fit into a notification.
create function oncely.tell_waiters(ids uuid[]) returns boolean language sql volatile
    as $$
        select case
            when cardinality(ids) > 0 and oncely.is_awaited(oncely.topic_key('result'))
            then pg_notify(
                oncely.channel(),
                case when cardinality(ids) <= 200 then 'result ' || array_to_string(ids, ' ')
                    else 'result' end
            )::text is not null
            else false
        end
    $$
