-- Every query but the migrations'. `-- name:` starts one, the comment below says what it is for.

-- name: append
-- The batch; parameters and result are described in 0002_append.sql.
select fleet.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: append_one
-- A batch of one request with one event; the same result.
select fleet.append_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: read_log
-- The log after a position.
select position, session_id, seq, agent_id, version, type, schema_version, recorded_at, causation, payload,
       payload_digest, hash
from fleet.events where position > $1 order by position limit $2

-- name: read_session
-- A session's events after a seq, up to a seq. The first position keeps partitions older than the session closed; the
-- page's end is said as a seq too, because seqs are dense and a bare limit lets the planner sort all that follows.
select position, session_id, seq, agent_id, version, type, schema_version, recorded_at, causation, payload,
       payload_digest, hash
from fleet.events
where session_id = $1 and seq > $2 and seq <= least($3::bigint, $2::bigint + $4::bigint)
  and position >= (select h.first_position from fleet.heads h where h.session_id = $1 and h.agent_id = '')
order by seq limit $4

-- name: read_stream
-- An agent's events after a version. The index on the agent's versions is the one to use: without statistics the planner
-- would read the whole session, so the session is compared in a form that its index cannot serve.
select position, session_id, seq, agent_id, version, type, schema_version, recorded_at, causation, payload,
       payload_digest, hash
from fleet.events
where agent_id = $2 and version > $3 and version <= $3::bigint + $4::bigint and session_id || '' = $1
  and position >= (select h.first_position from fleet.heads h where h.session_id = $1 and h.agent_id = $2)
order by version limit $4

-- name: head
-- The newest position.
select coalesce((select b.last_position from fleet.batches b order by b.last_position desc limit 1), 0)

-- name: session_head
-- A session's newest event.
select session_id, version, position, hash from fleet.heads where session_id = $1 and agent_id = ''

-- name: stream_head
-- An agent's version and epoch.
select agent_id, version, epoch from fleet.heads where session_id = $1 and agent_id = $2

-- name: read_batches
-- The chain over commits, after a position.
select first_position, last_position, recorded_at, hash from fleet.batches
where last_position > $1 order by last_position limit $2

-- name: incarnation
-- Which history this is.
select fleet.incarnation()

-- name: schema
-- The newest migration applied.
select coalesce(max(number), 0) from fleet.migrations

-- name: about
-- Who runs here, what that role could do beyond its functions, and how safe a commit is.
select current_user::text as role,
       (select r.rolsuper from pg_roles r where r.rolname = current_user)
           or has_table_privilege('fleet.events', 'insert, update, delete, truncate, trigger') as unrestricted,
       current_setting('server_version') as server_version,
       current_setting('fsync') as fsync,
       pg_is_in_recovery() as standby

-- name: durable
-- A commit that is reported is on disk; stricter settings of the server are kept.
select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'

-- name: alive
-- Whether anybody is there.
select 1

-- name: blob_stat
-- Size and upload of a blob.
select size, upload from fleet.blobs where digest = $1

-- name: blob_chunk
-- One chunk.
select zstd, data from fleet.blob_chunks where upload = $1 and number = $2

-- name: put_blob
-- A blob of one chunk.
select fleet.put_blob($1, $2, $3, $4)

-- name: begin_blob
-- A number for an upload of several chunks.
select fleet.begin_blob()

-- name: add_chunk
-- Its next chunk.
select fleet.add_chunk($1, $2, $3, $4)

-- name: finish_blob
-- Its name; false when that content is here already.
select fleet.finish_blob($1, $2, $3)

-- name: checkpoint
-- How far a projection has got.
select coalesce((select position from fleet.checkpoints where name = $1), 0)

-- name: checkpoint_lock
-- The same, held until the transaction ends; the row must exist.
select position from fleet.checkpoints where name = $1 for update

-- name: checkpoint_start
-- Makes the row.
insert into fleet.checkpoints (name, position) values ($1, 0) on conflict do nothing

-- name: checkpoint_move
-- Moves it.
update fleet.checkpoints set position = $2 where name = $1

-- name: checkpoint_forget
-- Removes it.
delete from fleet.checkpoints where name = $1

-- name: snapshot_get
-- The newest snapshot up to a seq.
select session_id, projection, seq, schema, code, state from fleet.snapshots
where session_id = $1 and projection = $2 and seq <= $3 order by seq desc limit 1

-- name: snapshot_put
-- Keeps a snapshot.
insert into fleet.snapshots (session_id, projection, seq, schema, code, state) values ($1, $2, $3, $4, $5, $6)
on conflict (session_id, projection, seq)
do update set schema = excluded.schema, code = excluded.code, state = excluded.state

-- name: rows_load
-- The states of some sessions.
select session_id, state from fleet.session_rows where session_id = any($1::text[])

-- name: rows_put
-- Writes rows.
insert into fleet.session_rows (session_id, updated_at, archived, title, folded, state)
select * from unnest($1::text[], $2::bigint[], $3::boolean[], $4::text[], $5::text[], $6::bytea[])
on conflict (session_id) do update
set updated_at = excluded.updated_at, archived = excluded.archived, title = excluded.title, folded = excluded.folded,
    state = excluded.state

-- name: rows_page
-- A page of rows, newest first.
select session_id, updated_at, archived, title, state from fleet.session_rows
where archived = $1 and (updated_at, session_id) < ($2, $3)
  and ($4::text is null or strpos(folded, $4) > 0 or starts_with(session_id, $5))
order by updated_at desc, session_id desc limit $6

-- name: rows_forget
-- Removes every row.
delete from fleet.session_rows

-- name: take_lease
-- A lease of a new generation for an owner.
select fleet.take_lease($1, $2, $3)

-- name: renew_lease
-- Whether a lease is still its owner's newest; it lives on for so many seconds if it is.
select fleet.renew_lease($1, $2, $3)

-- name: lease_holder
-- The living lease of a generation.
select owner, node from fleet.leases where generation = $1 and alive_until > clock_timestamp()

-- name: fork
-- The first event of a fork; the same result as append's.
select fleet.fork($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: first_event
-- A session's own first event: after its origin's seq, if it is a fork.
select position, session_id, seq, agent_id, version, type, schema_version, recorded_at, causation, payload,
       payload_digest, hash
from fleet.events
where session_id = $1
  and position = (select h.first_position from fleet.heads h where h.session_id = $1 and h.agent_id = $1)

-- name: purge
-- Payloads and unshared blobs of a session go: events, blobs, bytes.
select fleet.purge($1, $2)

-- name: forks
-- The sessions that share this one's history.
select fleet.forks($1)
