-- The one way into the log: many requests of many agents and sessions, one transaction, one round trip.

-- Few arrays instead of rows, because each array costs both sides more than a number in it.
--   heads_session,
--   heads_agent          the heads the batch touches, each once: sessions (the agent is '') and streams
--   requests             six numbers a request: its session and its stream as numbers of heads, expected version, epoch,
--                        how many events, causation
--   requests_key, requests_key_digest, requests_same_key
--                        one element a request: key ('' for none), digest of what it stands for, and the number of the
--                        latest earlier request of this batch with the same session and key, or 0; all three are null
--                        when nothing has a key
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
    heads_session text[], heads_agent text[], requests bigint[],
    requests_key text[], requests_key_digest bytea[], requests_same_key integer[],
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
    versions   bigint[];        -- per head, moving: seq or version, epoch, hash; its row; its new position
    epochs     bigint[];
    hashes     bytea[];
    rows       tid[];
    places     bigint[];
    key_first  bigint[];        -- per request: what was appended under its key
    key_last   bigint[];
    key_digest bytea[];
    verdicts   bigint[] := '{}';
    kind integer; a bigint; b bigint; digest bytea; q integer;
    base integer := 0; s integer; t integer; count integer; seq bigint; version bigint; link bytea; envelope text;
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
    select l.last_position, l.hash, l.recorded_at, l.until, x.versions, x.epochs, x.hashes, x.rows
    into last, last_hash, last_us, until, versions, epochs, hashes, rows
    from (select coalesce(c.last_position, 0) as last_position, coalesce(c.hash, genesis) as hash,
                 coalesce(c.recorded_at, 0) as recorded_at, m.partitioned_until - m.partition_events / 2 as until
          from fleet.meta m left join lateral
               (select c.last_position, c.hash, c.recorded_at
                from fleet.batches c order by c.last_position desc limit 1) c on true) l,
         (select array_agg(coalesce(h.version, 0)::bigint order by u.n) as versions,
                 array_agg(coalesce(h.epoch, 0) order by u.n) as epochs,
                 array_agg(h.hash order by u.n) as hashes,
                 array_agg(h.ctid order by u.n) as rows
          from unnest(heads_session, heads_agent) with ordinality u (session_id, agent_id, n) left join lateral
               (select h.version, h.epoch, h.hash, h.ctid
                from fleet.heads h
                where h.session_id = u.session_id and h.agent_id = u.agent_id limit 1) h on true) x;
    if requests_key is not null then
        select array_agg(k.first_seq::bigint order by r.n), array_agg(k.last_seq::bigint order by r.n),
               array_agg(k.digest order by r.n)
        into key_first, key_last, key_digest
        from unnest(requests_key) with ordinality r (key, n) left join lateral
             (select k.first_seq, k.last_seq, k.digest
              from fleet.keys k
              where k.session_id = heads_session[requests[6 * r.n - 5]] and k.key = r.key limit 1) k on true;
    end if;
    -- Never earlier than the event before, whatever the clock does.
    now_us := greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, last_us);

    for r in 1 .. cardinality(requests) / 6 loop
        s := requests[base + 1];
        t := requests[base + 2];
        count := requests[base + 5];
        base := base + 6;
        if heads_session[s] <> heads_session[t] or heads_agent[s] <> '' or heads_agent[t] = '' then
            raise exception 'request % names heads that do not belong together', r;
        end if;
        kind := 1;
        if requests_key is not null and requests_key[r] <> '' then
            a := key_first[r];
            b := key_last[r];
            digest := key_digest[r];
            q := requests_same_key[r];
            while a is null and q > 0 loop
                if verdicts[3 * q - 2] = 1 then
                    a := verdicts[3 * q - 1];
                    b := a + requests[6 * q - 1] - 1;
                    digest := requests_key_digest[q];
                end if;
                q := requests_same_key[q];
            end loop;
            if a is not null then
                kind := case when digest = requests_key_digest[r] then 3 else 4 end;
            end if;
        end if;
        version := versions[t];
        if kind = 1 and (requests[base - 3] <> version or requests[base - 2] < epochs[t]) then
            kind := 2;
            a := version;
            b := epochs[t];
        end if;
        if kind > 1 then
            verdicts := verdicts || array[kind, a, b];
            e := e + count;
            continue;
        end if;

        seq := versions[s];
        if seq + count > session_limit then
            raise exception using errcode = 'FL001', message = concat_ws(' ', r, 5, seq + count);
        elsif requests[base] > seq then
            raise exception using errcode = 'FL001', message = concat_ws(' ', r, 6, seq);
        end if;
        verdicts := verdicts || array[1, seq + 1, last + n + 1];
        link := coalesce(hashes[s], genesis);
        -- The layout is described in events/chain.py, which computes the same.
        envelope := concat(' ', now_us, ' ', requests[base], ' ', octet_length(heads_session[s]), ':', heads_session[s],
                           ' ', octet_length(heads_agent[t]), ':', heads_agent[t], ' ');
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
        versions[s] := seq + count;
        versions[t] := version + count;
        epochs[t] := requests[base - 2];
        hashes[s] := link;
        places[s] := last + n;
        places[t] := last + n;
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
           requests[6 * u.r - 3] + 1 + last + u.n - verdicts[3 * u.r], requests[6 * u.r], events_schema[u.e],
           heads_session[requests[6 * u.r - 5]], heads_agent[requests[6 * u.r - 4]],
           events_type[u.e], u.digest, u.hash, events_payload[u.e]
    from unnest(of_event, of_request, digests, links) with ordinality u (e, r, digest, hash, n);

    -- By row, found above: nobody else changes heads under the lock, and the table is open in this transaction, so
    -- nothing moves its rows.
    update fleet.heads h set version = u.version, epoch = u.epoch, position = u.place, hash = u.hash
    from unnest(rows, versions, epochs, places, hashes) u (row, version, epoch, place, hash)
    where h.ctid = u.row and u.place is not null;
    if array_position(rows, null) is not null then
        insert into fleet.heads (session_id, agent_id, version, epoch, position, first_position, hash)
        select u.session_id, u.agent_id, u.version, u.epoch, u.place, last + 1, u.hash
        from unnest(heads_session, heads_agent, rows, versions, epochs, places, hashes)
             u (session_id, agent_id, row, version, epoch, place, hash)
        where u.row is null and u.place is not null;
    end if;
    if requests_key is not null then
        insert into fleet.keys (session_id, key, first_seq, last_seq, digest)
        select heads_session[requests[6 * r.n - 5]], r.key, verdicts[3 * r.n - 1],
               verdicts[3 * r.n - 1] + requests[6 * r.n - 1] - 1, r.digest
        from unnest(requests_key, requests_key_digest) with ordinality r (key, digest, n)
        where r.key <> '' and verdicts[3 * r.n - 2] = 1;
    end if;
    insert into fleet.batches (last_position, first_position, recorded_at, hash)
    values (last + n, last + 1, now_us,
            sha256(last_hash || convert_to(concat(last + 1, ' ', last + n, ' ', now_us), 'UTF8')
                   || (select string_agg(u.hash, '' order by u.n) from unnest(links) with ordinality u (hash, n))));

    -- Inside the transaction, so nobody is woken for what is not there yet; one for the whole batch. No data in it.
    locked := pg_notify('fleet_log', '') is null;
    return verdicts;
end
$$;
comment on function fleet.append is 'Appends a batch: verdicts, events, heads, keys, chain and one notification.';
