-- Purging: the payloads of a session and the blobs that only they named go; envelopes, digests and hashes stay, so the
-- chain still proves what is left. Nothing else may ever change or remove a row.

create or replace function fleet.refuse() returns trigger
    language plpgsql set search_path = pg_catalog as
$$
begin
    if tg_op <> 'TRUNCATE' and current_setting('fleet.purging', true) = pg_current_xact_id()::text then
        return null; -- fleet.purge, in this very transaction
    end if;
    raise exception 'the log is append-only: % of % is refused', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end
$$;

create function fleet.purge(session text, upto integer) returns bigint[]
    language plpgsql volatile security definer set search_path = pg_catalog as
$$
declare
    locked  boolean;
    mine    text[];
    gone    text[];
    events  bigint; bytes bigint; blobs bigint;
begin
    locked := pg_advisory_xact_lock(7021791) is null; -- nobody appends a name of a blob that goes meanwhile
    if not exists (select from fleet.events e where e.session_id = session and e.type = 'PayloadsPurged'
                   and (convert_from(e.payload, 'UTF8')::json ->> 'until_seq')::integer >= upto) then
        raise exception 'a purge is recorded before it is done' using errcode = 'restrict_violation';
    end if;
    select coalesce(array_agg(distinct m.found[1]), '{}') into mine
    from fleet.events e, lateral regexp_matches(convert_from(e.payload, 'UTF8'), '"digest":"([0-9a-f]{64})"', 'g') m (found)
    where e.session_id = session and e.seq <= upto;
    select coalesce(array_agg(d), '{}') into gone from unnest(mine) d
    where d not in (select m.found[1]
                    from fleet.events e,
                         lateral regexp_matches(convert_from(e.payload, 'UTF8'), '"digest":"([0-9a-f]{64})"', 'g') m (found)
                    where (e.session_id <> session or e.seq > upto) and m.found[1] = any (mine));
    perform set_config('fleet.purging', pg_current_xact_id()::text, true);
    select coalesce(sum(b.size), 0), count(*) into bytes, blobs from fleet.blobs b where b.digest = any (gone);
    delete from fleet.blob_chunks c using fleet.blobs b where b.digest = any (gone) and c.upload = b.upload;
    delete from fleet.blobs b where b.digest = any (gone);
    select bytes + coalesce(sum(length(e.payload)), 0) into bytes
    from fleet.events e where e.session_id = session and e.seq <= upto and e.type not in ('PayloadsPurged', 'LeaseTaken');
    update fleet.events e set payload = ''
    where e.session_id = session and e.seq <= upto and e.payload <> '' and e.type not in ('PayloadsPurged', 'LeaseTaken');
    get diagnostics events = row_count;
    delete from fleet.snapshots s where s.session_id = session;
    perform set_config('fleet.purging', '', true);
    return array[events, blobs, bytes];
end
$$;
comment on function fleet.purge is 'Removes payloads and unshared blobs of a session up to a seq; gives how many, and bytes.';

create function fleet.forks(session text) returns setof text
    language sql stable security definer set search_path = pg_catalog as
$$
    select e.session_id from fleet.events e
    where e.type = 'SessionForked' and e.payload <> ''
      and convert_from(e.payload, 'UTF8')::json ->> 'origin' = session
    order by e.position
$$;
comment on function fleet.forks is 'The sessions that share this one''s history.';
