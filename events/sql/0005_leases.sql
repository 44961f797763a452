-- Who may write which sessions: see events/leases.py.

create sequence fleet.generations as bigint;

create table fleet.leases (
    owner       text collate "C" not null primary key,
    generation  bigint      not null unique,
    node        text        not null,
    taken_at    timestamptz not null,
    alive_until timestamptz not null
) with (fillfactor = 50);
comment on table fleet.leases is 'One row a post that owns sessions: which process fills it, and until when it is taken for alive.';

create function fleet.take_lease(post text, place text, seconds double precision) returns bigint
    language sql volatile security definer set search_path = pg_catalog as
$$
    insert into fleet.leases as l (owner, generation, node, taken_at, alive_until)
    values (post, nextval('fleet.generations'), place, clock_timestamp(), clock_timestamp() + make_interval(secs => seconds))
    on conflict (owner) do update set generation = excluded.generation, node = excluded.node,
        taken_at = excluded.taken_at, alive_until = excluded.alive_until
    where l.generation < excluded.generation
    returning generation
$$;
comment on function fleet.take_lease is 'A new generation for a post; null when a newer one was taken meanwhile.';

create function fleet.renew_lease(post text, held bigint, seconds double precision) returns boolean
    language sql volatile security definer set search_path = pg_catalog as
$$
    update fleet.leases l set alive_until = clock_timestamp() + make_interval(secs => seconds)
    where l.owner = post and l.generation = held
    returning true
$$;
comment on function fleet.renew_lease is 'True while this generation is the newest of its post, else null.';
