-- What projections keep beside the log: all of it can be dropped and folded again. Not append-only.

create table fleet.checkpoints (
    name     text collate "C"   primary key,
    position bigint not null
);
comment on table fleet.checkpoints is 'How far each projection has got.';

create table fleet.snapshots (
    session_id text collate "C"    not null,
    projection text collate "C"    not null,
    seq        integer not null,
    schema     integer not null,
    code       text    not null,
    state      bytea   not null,
    primary key (session_id, projection, seq)
);
comment on table fleet.snapshots is 'States of folds over long sessions, usable while schema and code match.';

create table fleet.session_rows (
    session_id text collate "C"    primary key,
    updated_at bigint  not null,
    archived   boolean not null,
    title      text    not null,
    folded     text    not null, -- the title with its case folded by the writer, whatever the locale here
    state      bytea   not null
) with (fillfactor = 80);
comment on table fleet.session_rows is 'Sessions as lists show them.';
create index session_rows_newest on fleet.session_rows (archived, updated_at desc, session_id desc);
