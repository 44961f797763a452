-- The log's tables: what is appended, what makes appending fast and provable, and the guards that refuse changes.

create table fleet.meta (
    one               boolean primary key default true check (one),
    incarnation       uuid    not null default gen_random_uuid(),
    partition_events  bigint  not null default 4000000 check (partition_events between 10 and 1000000000),
    partitioned_until bigint  not null default 0
);
comment on table fleet.meta is 'One row: which history this is, and how far there are partitions.';
insert into fleet.meta default values;

create function fleet.refuse() returns trigger
    language plpgsql set search_path = pg_catalog as
$$
begin
    raise exception 'the log is append-only: % of % is refused', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end
$$;
comment on function fleet.refuse is 'Trigger: refuses, whoever asks.';

create function fleet.guard(tab regclass) returns void
    language plpgsql set search_path = pg_catalog as
$$
begin
    execute format('create trigger append_only before update or delete or truncate on %s
                    for each statement execute function fleet.refuse()', tab);
end
$$;
comment on function fleet.guard is 'Makes a table append-only; statement triggers, so also where no row would match.';

-- Fixed widths first: no padding between them. Everything but the payload is in the hash through the envelope.
create table fleet.events (
    position       bigint  not null primary key,
    recorded_at    bigint  not null,
    seq            integer not null,
    version        integer not null,
    causation      integer not null,
    schema_version integer not null,
    session_id     text collate "C"    not null,
    agent_id       text collate "C"    not null,
    type           text collate "C"    not null,
    payload_digest bytea   not null,
    hash           bytea   not null,
    payload        bytea   not null
) partition by range (position);
comment on table fleet.events is 'The log. Positions 1, 2, 3 ... are assigned and become visible in order.';
select fleet.guard('fleet.events');

do $$
begin
    alter table fleet.events alter column payload set compression lz4;
exception when feature_not_supported or invalid_parameter_value then
    null; -- this server was built without lz4; the default compression does
end
$$;

create table fleet.heads (
    session_id     text collate "C"    not null,
    agent_id       text collate "C"    not null,
    version        integer not null,
    epoch          bigint  not null,
    position       bigint  not null,
    first_position bigint  not null,
    hash           bytea,
    primary key (session_id, agent_id)
) with (fillfactor = 70);
comment on table fleet.heads is
    'One row a session (agent_id is empty, version is its seq, hash its newest link) and one row an agent: its version and
     the epoch of the incarnation that may write. Positions: of the newest event, and one not after the first.';

create table fleet.keys (
    session_id text collate "C"    not null,
    key        text collate "C"    not null,
    first_seq  integer not null,
    last_seq   integer not null,
    digest     bytea   not null,
    primary key (session_id, key)
);
comment on table fleet.keys is 'Idempotency keys that were used, and what was appended under them.';
select fleet.guard('fleet.keys');

create table fleet.batches (
    last_position  bigint not null primary key,
    first_position bigint not null,
    recorded_at    bigint not null,
    hash           bytea  not null
);
comment on table fleet.batches is 'One row a commit, each linked to the one before: a chain over the whole log.';
select fleet.guard('fleet.batches');

create function fleet.add_partition() returns void
    language plpgsql security definer set search_path = pg_catalog as
$$
declare
    done bigint;
    size bigint;
    part text;
begin
    select m.partitioned_until, m.partition_events into done, size from fleet.meta m for update;
    part := format('fleet.events_%s', done + 1);
    -- Made beside and then attached: readers of the log are not locked out, as they are by "partition of".
    execute format('create table %s (like fleet.events including all,
                    constraint part check (position >= %s and position < %s))', part, done + 1, done + size + 1);
    -- No unique index over all partitions is possible; one in each catches what the function must never do.
    execute format('create unique index on %s (session_id, seq)', part);
    execute format('create index on %s (agent_id, version)', part);
    execute format('select fleet.guard(%L)', part);
    execute format('alter table fleet.events attach partition %s for values from (%s) to (%s)',
                   part, done + 1, done + size + 1);
    execute format('alter table %s drop constraint part', part);
    update fleet.meta m set partitioned_until = done + size;
end
$$;
comment on function fleet.add_partition is 'One more partition after the last; append calls it half a partition ahead.';
select fleet.add_partition();

create function fleet.incarnation() returns text
    language sql stable security definer set search_path = pg_catalog as
$$
    select encode(substr(sha256(convert_to(concat_ws(' ', m.incarnation,
               (select s.system_identifier from pg_control_system() s),
               (select c.timeline_id from pg_control_checkpoint() c),
               (select d.oid from pg_database d where d.datname = current_database())), 'UTF8')), 1, 16), 'hex')
    from fleet.meta m
$$;
comment on function fleet.incarnation is
    'Names this history: another after a restore into another database or server, or to a point in time.';
