-- Sessions that begin with another's history, by reference: a fork's first event has the seq after the one it was forked
-- at, and its hash links to that event's. Nothing is copied.

create function fleet.fork(
    session text, origin text, at integer, incarnation bigint, request_key text, request_digest bytea,
    event_type text, event_schema integer, event_payload bytea, session_limit bigint
) returns bigint[]
    language plpgsql volatile security definer
    set search_path = pg_catalog
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
as
$$
declare
    genesis   constant bytea := '\x0000000000000000000000000000000000000000000000000000000000000000';
    locked    boolean;
    place     bigint; last_hash bytea; now_us bigint; until bigint;
    link      bytea; digest bytea; a bigint; b bigint; found_version bigint; found_epoch bigint;
begin
    locked := pg_advisory_xact_lock(7021791) is null;
    if request_key is not null then
        select k.first_seq, k.last_seq, k.digest into a, b, digest
        from fleet.keys k where k.session_id = session and k.key = request_key;
        if found then
            return array[case when digest = request_digest then 3 else 4 end, a, b];
        end if;
    end if;
    select h.version, h.epoch into found_version, found_epoch
    from fleet.heads h where h.session_id = session and h.agent_id = session;
    if found then
        return array[2, found_version, found_epoch];
    end if;
    if at + 1 > session_limit then
        raise exception using errcode = 'FL001', message = concat_ws(' ', 1, 5, at + 1);
    end if;
    select e.hash into link from fleet.events e
    where e.session_id = origin and e.seq = at
      and e.position >= (select h.first_position from fleet.heads h where h.session_id = origin and h.agent_id = '');
    if link is null then
        raise exception using errcode = 'FL001', message = concat_ws(' ', 1, 6, 0);
    end if;
    select coalesce(c.last_position, 0) + 1, coalesce(c.hash, genesis), m.partitioned_until - m.partition_events / 2,
           greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, c.recorded_at)
    into place, last_hash, until, now_us
    from fleet.meta m left join lateral
         (select c.last_position, c.hash, c.recorded_at
          from fleet.batches c order by c.last_position desc limit 1) c on true;

    digest := sha256(event_payload);
    link := sha256(link
                   || convert_to(concat(place, ' ', at + 1, ' ', 1, ' ', event_schema, ' ', now_us, ' ', at, ' ',
                                        octet_length(session), ':', session, ' ', octet_length(session), ':', session, ' ',
                                        octet_length(event_type), ':', event_type), 'UTF8')
                   || digest);
    if place > until then
        perform fleet.add_partition();
    end if;
    insert into fleet.events (position, recorded_at, seq, version, causation, schema_version, session_id, agent_id,
                              type, payload_digest, hash, payload)
    values (place, now_us, at + 1, 1, at, event_schema, session, session, event_type, digest, link, event_payload);
    insert into fleet.heads (session_id, agent_id, version, epoch, position, first_position, hash)
    values (session, '', at + 1, 0, place, place, link), (session, session, 1, incarnation, place, place, null);
    if request_key is not null then
        insert into fleet.keys (session_id, key, first_seq, last_seq, digest)
        values (session, request_key, at + 1, at + 1, request_digest);
    end if;
    insert into fleet.batches (last_position, first_position, recorded_at, hash)
    values (place, place, now_us,
            sha256(last_hash || convert_to(concat(place, ' ', place, ' ', now_us), 'UTF8') || link));
    locked := pg_notify('fleet_log', '') is null;
    return array[1, at + 1, place];
end
$$;
comment on function fleet.fork is 'The first event of a session that goes on from another''s event at a seq; as fleet.append_one else.';
