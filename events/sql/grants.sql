-- What the running role may do: execute the functions that write, and read. Run after every migration.
-- {app} is the role's quoted name.
revoke all on schema fleet from public;
revoke all on all functions in schema fleet from public;
revoke all on all tables in schema fleet from public;
grant usage on schema fleet to {app};
grant select on all tables in schema fleet to {app};
grant execute on function fleet.append, fleet.append_one, fleet.incarnation, fleet.begin_blob, fleet.add_chunk, fleet.finish_blob,
    fleet.put_blob, fleet.take_lease, fleet.renew_lease, fleet.fork, fleet.forks,
    fleet.purge to {app};
grant insert, update, delete on fleet.checkpoints, fleet.snapshots, fleet.session_rows to {app};
alter default privileges in schema fleet revoke execute on functions from public;
alter default privileges in schema fleet grant select on tables to {app};
