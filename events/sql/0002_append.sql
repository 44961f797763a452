-- The one way into the log: many requests of many agents and sessions, one transaction, one round trip.

-- Arrays instead of rows: the caller sends each session and stream of the batch once and refers to them by number.
--   sessions             the distinct sessions
--   streams_session,
--   streams_agent        the distinct streams: number of the session, agent
--   requests_*           one element a request: number of the stream, expected version, epoch, how many events, causation,
--                        number of the call it came with (calls are refused as a whole), key ('' for none), key digest,
--                        and the number of the latest earlier request of this batch with the same session and key, or 0
--   events_*             one element an event, in the order of the requests
-- Five numbers a request come back:
--   1 appended           first seq, last seq, version, position
--   2 conflict           version, epoch
--   3 duplicate          first seq, last seq
--   4 key clash          first seq
--   5 session too long   seq it would reach
--   6 unknown cause      seq of the session's head
create function fleet.append(
    sessions text[], streams_session integer[], streams_agent text[],
    requests_stream integer[], requests_expected bigint[], requests_epoch bigint[], requests_count integer[],
    requests_causation bigint[], requests_call integer[], requests_key text[], requests_key_digest bytea[],
    requests_same_key integer[],
    events_type text[], events_schema integer[], events_payload bytea[],
    session_limit bigint
) returns bigint[]
    language plpgsql volatile security definer
    set search_path = pg_catalog
    -- Plans are cached when tables may still be empty, where reading all of them looks cheap; it never is later.
    set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
as
$$
declare
    genesis    constant bytea := decode(repeat('00', 32), 'hex');
    requests   constant integer := cardinality(requests_stream);
    head       record;
    now_us     bigint;
    place      bigint;          -- position of the event before
    places     bigint[];        -- per session, of its newest event
    first      bigint;          -- position of the batch's first event
    seqs       bigint[];        -- per session, moving
    links      bytea[];
    versions   bigint[];        -- per stream, moving
    epochs     bigint[];
    seqs0      bigint[];        -- the same as they were before
    versions0  bigint[];
    epochs0    bigint[];
    key_first  bigint[];        -- per request, from the table
    key_last   bigint[];
    key_digest bytea[];
    refused    bigint[];        -- per call: 5 or 6, and the seq that comes with it
    refusal    bigint[];
    again      boolean;
    verdicts   bigint[];
    s integer; t integer; e integer; q integer; base integer;
    kind bigint; a bigint; b bigint; c bigint; d bigint;
    seq bigint; version bigint; link bytea; digest bytea; cause bigint;
    session_name text; agent_name text; suffix text;
    n          integer := 0;
    out_event integer[]; out_position bigint[]; out_session text[]; out_seq bigint[]; out_agent text[]; out_version bigint[];
    out_causation bigint[]; out_digest bytea[]; out_hash bytea[];
    appended   boolean := false;
begin
    -- Its own statement, before any read: each later statement of a volatile function takes its snapshot anew, so
    -- everything below sees all that was committed by whoever had the lock before.
    perform pg_advisory_xact_lock(7021791);

    select l.last_position, l.hash, l.recorded_at, m.partitioned_until, m.partition_events into head
    from fleet.meta m left join lateral (
        select x.last_position, x.hash, x.recorded_at from fleet.batches x order by x.last_position desc limit 1
    ) l on true;
    -- Never earlier than the event before, whatever the clock does.
    now_us := greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, head.recorded_at);

    -- Scalar sub-selects, not joins: a join's plan may change its kind with statistics, an index lookup does not.
    select array_agg(coalesce((select h.seq from fleet.session_heads h where h.session_id = u.id), 0) order by u.n),
           array_agg(coalesce((select h.hash from fleet.session_heads h where h.session_id = u.id), genesis) order by u.n)
    into seqs0, links
    from unnest(sessions) with ordinality u (id, n);
    select array_agg(coalesce((select h.version from fleet.stream_heads h
                               where h.session_id = sessions[u.s] and h.agent_id = u.agent), 0) order by u.n),
           array_agg(coalesce((select h.epoch from fleet.stream_heads h
                               where h.session_id = sessions[u.s] and h.agent_id = u.agent), 0) order by u.n)
    into versions0, epochs0
    from unnest(streams_session, streams_agent) with ordinality u (s, agent, n);
    if requests_key is not null then
        select array_agg((select k.first_seq from fleet.keys k where k.session_id = u.id and k.key = u.key) order by u.n),
               array_agg((select k.last_seq from fleet.keys k where k.session_id = u.id and k.key = u.key) order by u.n),
               array_agg((select k.digest from fleet.keys k where k.session_id = u.id and k.key = u.key) order by u.n)
        into key_first, key_last, key_digest
        from (select sessions[streams_session[r.t]] as id, r.key, r.n
              from unnest(requests_stream, requests_key) with ordinality r (t, key, n)) u;
    end if;

    -- Verdicts. A call with a request over a limit is refused as a whole, so then it is judged once more without it.
    loop
        again := false;
        seqs := seqs0;
        versions := versions0;
        epochs := epochs0;
        verdicts := array_fill(0::bigint, array[5 * requests]);
        for r in 1 .. requests loop
            base := 5 * r - 4;
            t := requests_stream[r];
            s := streams_session[t];
            if refused is not null and refused[requests_call[r]] is not null then
                verdicts[base] := refused[requests_call[r]];
                verdicts[base + 1] := refusal[requests_call[r]];
                continue;
            end if;
            kind := 0;
            if requests_key is not null and requests_key[r] <> '' then
                a := key_first[r];
                b := key_last[r];
                digest := key_digest[r];
                q := requests_same_key[r];
                while a is null and q > 0 loop
                    if verdicts[5 * q - 4] = 1 then
                        a := verdicts[5 * q - 3];
                        b := verdicts[5 * q - 2];
                        digest := requests_key_digest[q];
                    end if;
                    q := requests_same_key[q];
                end loop;
                if a is not null then
                    kind := case when digest = requests_key_digest[r] then 3 else 4 end;
                    c := 0;
                    d := 0;
                end if;
            end if;
            if kind = 0 then
                if requests_expected[r] <> versions[t] or requests_epoch[r] < epochs[t] then
                    kind := 2;
                    a := versions[t];
                    b := epochs[t];
                    c := 0;
                    d := 0;
                elsif seqs[s] + requests_count[r] > session_limit then
                    refused[requests_call[r]] := 5;
                    refusal[requests_call[r]] := seqs[s] + requests_count[r];
                    again := true;
                    continue;
                elsif requests_causation[r] > seqs[s] then
                    refused[requests_call[r]] := 6;
                    refusal[requests_call[r]] := seqs[s];
                    again := true;
                    continue;
                else
                    kind := 1;
                    a := seqs[s] + 1;
                    b := seqs[s] + requests_count[r];
                    c := versions[t] + requests_count[r];
                    d := 0; -- the position, known once every verdict is
                    seqs[s] := b;
                    versions[t] := c;
                    epochs[t] := requests_epoch[r];
                    appended := true;
                end if;
            end if;
            verdicts[base] := kind;
            verdicts[base + 1] := a;
            verdicts[base + 2] := b;
            verdicts[base + 3] := c;
            verdicts[base + 4] := d;
        end loop;
        exit when not again;
        appended := false;
    end loop;
    if not appended then
        return verdicts;
    end if;

    -- Events: number and link them.
    place := coalesce(head.last_position, 0);
    first := place + 1;
    places := seqs0;
    seqs := seqs0;
    versions := versions0;
    e := 0;
    for r in 1 .. requests loop
        base := 5 * r - 4;
        if verdicts[base] <> 1 then
            e := e + requests_count[r];
            continue;
        end if;
        t := requests_stream[r];
        s := streams_session[t];
        seq := seqs[s];
        version := versions[t];
        link := links[s];
        cause := requests_causation[r];
        session_name := sessions[s];
        agent_name := streams_agent[t];
        suffix := concat(' ', now_us, ' ', cause, ' ', octet_length(session_name), ':', session_name, ' ',
                         octet_length(agent_name), ':', agent_name, ' ');
        for i in 1 .. requests_count[r] loop
            e := e + 1;
            place := place + 1;
            seq := seq + 1;
            version := version + 1;
            digest := sha256(events_payload[e]);
            -- The layout is described in events/chain.py, which computes the same.
            link := sha256(link || convert_to(concat(place, ' ', seq, ' ', version, ' ', events_schema[e], suffix,
                                                     octet_length(events_type[e]), ':', events_type[e]), 'UTF8') || digest);
            n := n + 1;
            out_event[n] := e;
            out_position[n] := place;
            out_session[n] := session_name;
            out_seq[n] := seq;
            out_agent[n] := agent_name;
            out_version[n] := version;
            out_causation[n] := cause;
            out_digest[n] := digest;
            out_hash[n] := link;
        end loop;
        seqs[s] := seq;
        versions[t] := version;
        links[s] := link;
        places[s] := place;
        verdicts[base + 4] := place;
    end loop;

    if place + head.partition_events / 2 > head.partitioned_until then
        perform fleet.add_partition();
    end if;

    insert into fleet.events (position, recorded_at, seq, version, causation, schema_version, session_id, agent_id,
                              type, payload_digest, hash, payload)
    select u.position, now_us, u.seq, u.version, u.causation, events_schema[u.e], u.session_id, u.agent_id,
           events_type[u.e], u.digest, u.hash, events_payload[u.e]
    from unnest(out_event, out_position, out_seq, out_version, out_causation, out_session, out_agent, out_digest,
                out_hash) u (e, position, seq, version, causation, session_id, agent_id, digest, hash);

    insert into fleet.session_heads as h (session_id, seq, position, first_position, hash)
    select u.id, u.seq, u.place, first, u.hash
    from unnest(sessions, seqs, seqs0, places, links) u (id, seq, seq0, place, hash)
    where u.seq > u.seq0
    on conflict (session_id) do update set seq = excluded.seq, position = excluded.position, hash = excluded.hash;

    insert into fleet.stream_heads as h (session_id, agent_id, version, epoch)
    select sessions[u.s], u.agent, u.version, u.epoch
    from unnest(streams_session, streams_agent, versions, versions0, epochs) u (s, agent, version, version0, epoch)
    where u.version > u.version0
    on conflict (session_id, agent_id) do update set version = excluded.version, epoch = excluded.epoch;

    if requests_key is not null then
        insert into fleet.keys (session_id, key, first_seq, last_seq, digest)
        select sessions[streams_session[u.t]], u.key, verdicts[5 * u.n - 3], verdicts[5 * u.n - 2], u.digest
        from unnest(requests_stream, requests_key, requests_key_digest) with ordinality u (t, key, digest, n)
        where u.key <> '' and verdicts[5 * u.n - 4] = 1;
    end if;

    insert into fleet.batches (last_position, first_position, recorded_at, hash)
    values (place, first, now_us,
            sha256(coalesce(head.hash, genesis) || convert_to(concat(first, ' ', place, ' ', now_us), 'UTF8')
                   || (select string_agg(u.hash, '' order by u.n) from unnest(out_hash) with ordinality u (hash, n))));

    -- Inside the transaction, so nobody is woken for what is not there yet; one for the whole batch. No data in it.
    perform pg_notify('fleet_log', '');
    return verdicts;
end
$$;
comment on function fleet.append is 'Appends a batch: verdicts, events, heads, keys, chain and one notification.';
