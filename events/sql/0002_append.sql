-- The one way into the log: many requests of many agents and sessions, one transaction, one round trip.

-- Arrays instead of rows: the caller sends each session and stream of the batch once and refers to them by number.
--   sessions             the distinct sessions
--   streams_session,
--   streams_agent        the distinct streams: number of the session, agent
--   requests_*           one element a request: number of the stream, expected version, epoch, how many events, causation,
--                        key ('' for none), key digest, and the number of the latest earlier request of this batch with
--                        the same session and key, or 0; the last three are null when nothing has a key
--   events_*             one element an event, in the order of the requests
-- Three numbers a request come back:
--   1 appended           first seq, first position
--   2 conflict           version, epoch
--   3 duplicate          first seq, last seq
--   4 key clash          first seq, last seq
-- Two things refuse the whole batch, which is then unwritten, as error FL001 with "NUMBER KIND SEQ" as its message:
-- which request it was, and
--   5 session too long   the seq it would reach
--   6 unknown cause      the seq of the session's head
--
-- Written for few and cheap steps: each expression here costs about a microsecond a call before it does anything.
create function fleet.append(
    sessions text[], streams_session integer[], streams_agent text[],
    requests_stream integer[], requests_expected bigint[], requests_epoch bigint[], requests_count integer[],
    requests_causation bigint[], requests_key text[], requests_key_digest bytea[], requests_same_key integer[],
    events_type text[], events_schema integer[], events_payload bytea[],
    session_limit bigint
) returns bigint[]
    language plpgsql volatile security definer
    set search_path = pg_catalog
    -- Plans are cached when tables may still be empty, where reading all of them looks cheap; it never is later.
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as
$$
declare
    genesis    constant bytea := '\x0000000000000000000000000000000000000000000000000000000000000000';
    locked     boolean;
    last       bigint;          -- the log's newest position
    last_hash  bytea;
    last_us    bigint;
    until      bigint;          -- how far there are partitions, less half of one
    now_us     bigint;
    seqs       bigint[];        -- per session: seq and hash of its head, moving; its row; its new position
    hashes     bytea[];
    rows       tid[];
    places     bigint[];
    versions   bigint[];        -- per stream: version and epoch, moving; its row
    epochs     bigint[];
    lines      tid[];
    key_first  bigint[];        -- per request: what was appended under its key
    key_last   bigint[];
    key_digest bytea[];
    verdicts   bigint[] := '{}';
    kind integer; a bigint; b bigint; digest bytea; q integer;
    t integer; s integer; count integer; seq bigint; link bytea; envelope text; version bigint;
    e          integer := 0;    -- events looked at
    n          integer := 0;    -- events appended; of each:
    of_event   integer[];
    of_request integer[];
    digests    bytea[];
    links      bytea[];
begin
    -- Its own statement, before any read: each later statement of a volatile function takes its snapshot anew, so
    -- everything below sees all that was committed by whoever had the lock before.
    locked := pg_advisory_xact_lock(7021791) is null;

    -- Index look-ups one by one (the limit keeps them from becoming joins, whose plans change with statistics).
    select l.last_position, l.hash, l.recorded_at, l.until, x.seqs, x.hashes, x.rows, y.versions, y.epochs, y.lines
    into last, last_hash, last_us, until, seqs, hashes, rows, versions, epochs, lines
    from (select coalesce(c.last_position, 0) as last_position, coalesce(c.hash, genesis) as hash,
                 coalesce(c.recorded_at, 0) as recorded_at, m.partitioned_until - m.partition_events / 2 as until
          from fleet.meta m left join lateral
               (select c.last_position, c.hash, c.recorded_at
                from fleet.batches c order by c.last_position desc limit 1) c on true) l,
         (select array_agg(coalesce(h.seq, 0)::bigint order by u.n) as seqs,
                 array_agg(coalesce(h.hash, genesis) order by u.n) as hashes,
                 array_agg(h.ctid order by u.n) as rows
          from unnest(sessions) with ordinality u (id, n) left join lateral
               (select h.seq, h.hash, h.ctid
                from fleet.session_heads h where h.session_id = u.id limit 1) h on true) x,
         (select array_agg(coalesce(h.version, 0)::bigint order by u.n) as versions,
                 array_agg(coalesce(h.epoch, 0) order by u.n) as epochs,
                 array_agg(h.ctid order by u.n) as lines
          from unnest(streams_session, streams_agent) with ordinality u (s, agent, n) left join lateral
               (select h.version, h.epoch, h.ctid
                from fleet.stream_heads h
                where h.session_id = sessions[u.s] and h.agent_id = u.agent limit 1) h on true) y;
    if requests_key is not null then
        select array_agg(k.first_seq::bigint order by r.n), array_agg(k.last_seq::bigint order by r.n),
               array_agg(k.digest order by r.n)
        into key_first, key_last, key_digest
        from unnest(requests_stream, requests_key) with ordinality r (t, key, n) left join lateral
             (select k.first_seq, k.last_seq, k.digest
              from fleet.keys k
              where k.session_id = sessions[streams_session[r.t]] and k.key = r.key limit 1) k on true;
    end if;
    -- Never earlier than the event before, whatever the clock does.
    now_us := greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, last_us);

    for r in 1 .. cardinality(requests_stream) loop
        t := requests_stream[r];
        s := streams_session[t];
        count := requests_count[r];
        kind := 1;
        if requests_key is not null and requests_key[r] <> '' then
            a := key_first[r];
            b := key_last[r];
            digest := key_digest[r];
            q := requests_same_key[r];
            while a is null and q > 0 loop
                if verdicts[3 * q - 2] = 1 then
                    a := verdicts[3 * q - 1];
                    b := a + requests_count[q] - 1;
                    digest := requests_key_digest[q];
                end if;
                q := requests_same_key[q];
            end loop;
            if a is not null then
                kind := case when digest = requests_key_digest[r] then 3 else 4 end;
            end if;
        end if;
        version := versions[t];
        if kind = 1 and (requests_expected[r] <> version or requests_epoch[r] < epochs[t]) then
            kind := 2;
            a := version;
            b := epochs[t];
        end if;
        if kind > 1 then
            verdicts := verdicts || array[kind, a, b];
            e := e + count;
            continue;
        end if;

        seq := seqs[s];
        if seq + count > session_limit then
            raise exception using errcode = 'FL001', message = concat_ws(' ', r, 5, seq + count);
        elsif requests_causation[r] > seq then
            raise exception using errcode = 'FL001', message = concat_ws(' ', r, 6, seq);
        end if;
        verdicts := verdicts || array[1, seq + 1, last + n + 1];
        link := hashes[s];
        -- The layout is described in events/chain.py, which computes the same.
        envelope := concat(' ', now_us, ' ', requests_causation[r], ' ', octet_length(sessions[s]), ':', sessions[s],
                           ' ', octet_length(streams_agent[t]), ':', streams_agent[t], ' ');
        for i in 1 .. count loop
            e := e + 1;
            n := n + 1;
            digest := sha256(events_payload[e]);
            link := sha256(link || convert_to(concat(last + n, ' ', seq + i, ' ', version + i, ' ', events_schema[e],
                                                     envelope, octet_length(events_type[e]), ':', events_type[e]),
                                              'UTF8') || digest);
            of_event[n] := e;
            of_request[n] := r;
            digests[n] := digest;
            links[n] := link;
        end loop;
        seqs[s] := seq + count;
        hashes[s] := link;
        places[s] := last + n;
        versions[t] := version + count;
        epochs[t] := requests_epoch[r];
    end loop;
    if n = 0 then
        return verdicts;
    end if;

    if last + n > until then
        perform fleet.add_partition();
    end if;
    insert into fleet.events (position, recorded_at, seq, version, causation, schema_version, session_id, agent_id,
                              type, payload_digest, hash, payload)
    select last + u.n, now_us, verdicts[3 * u.r - 1] + last + u.n - verdicts[3 * u.r],
           requests_expected[u.r] + 1 + last + u.n - verdicts[3 * u.r], requests_causation[u.r], events_schema[u.e],
           sessions[streams_session[requests_stream[u.r]]], streams_agent[requests_stream[u.r]],
           events_type[u.e], u.digest, u.hash, events_payload[u.e]
    from unnest(of_event, of_request, digests, links) with ordinality u (e, r, digest, hash, n);

    -- By row, found above: nobody else changes heads under the lock, and the table is open in this transaction, so
    -- nothing moves its rows.
    update fleet.session_heads h set seq = u.seq, position = u.place, hash = u.hash
    from unnest(rows, seqs, places, hashes) u (row, seq, place, hash)
    where h.ctid = u.row and u.place is not null;
    if array_position(rows, null) is not null then
        insert into fleet.session_heads (session_id, seq, position, first_position, hash)
        select u.id, u.seq, u.place, last + 1, u.hash
        from unnest(sessions, rows, seqs, places, hashes) u (id, row, seq, place, hash)
        where u.row is null and u.place is not null;
    end if;
    update fleet.stream_heads h set version = u.version, epoch = u.epoch
    from unnest(lines, versions, epochs) u (line, version, epoch)
    where h.ctid = u.line;
    if array_position(lines, null) is not null then
        insert into fleet.stream_heads (session_id, agent_id, version, epoch)
        select sessions[u.s], u.agent, u.version, u.epoch
        from unnest(streams_session, streams_agent, lines, versions, epochs) u (s, agent, line, version, epoch)
        where u.line is null and u.version > 0;
    end if;
    if requests_key is not null then
        insert into fleet.keys (session_id, key, first_seq, last_seq, digest)
        select sessions[streams_session[r.t]], r.key, verdicts[3 * r.n - 1], verdicts[3 * r.n - 1] + r.count - 1, r.digest
        from unnest(requests_stream, requests_count, requests_key, requests_key_digest)
             with ordinality r (t, count, key, digest, n)
        where r.key <> '' and verdicts[3 * r.n - 2] = 1;
    end if;
    insert into fleet.batches (last_position, first_position, recorded_at, hash)
    values (last + n, last + 1, now_us,
            sha256(last_hash || convert_to(concat(last + 1, ' ', last + n, ' ', now_us), 'UTF8')
                   || (select string_agg(u.hash, '' order by u.n) from unnest(links) with ordinality u (hash, n))));

    -- Inside the transaction, so nobody is woken for what is not there yet; one for the whole batch. No data in it.
    perform pg_notify('fleet_log', '');
    return verdicts;
end
$$;
comment on function fleet.append is 'Appends a batch: verdicts, events, heads, keys, chain and one notification.';
