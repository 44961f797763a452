-- Large things: content-addressed, in chunks, written once and never changed.

create sequence fleet.uploads;

create table fleet.blobs (
    digest text collate "C"   primary key check (digest ~ '^[0-9a-f]{64}$'),
    size   bigint not null check (size >= 0),
    upload bigint not null unique
);
comment on table fleet.blobs is 'One row a blob: hex sha256 and size of its content, and the upload whose chunks hold it.';

create table fleet.blob_chunks (
    upload bigint  not null,
    number integer not null,
    zstd   boolean not null,
    data   bytea   not null,
    primary key (upload, number)
);
comment on table fleet.blob_chunks is 'The content: each chunk but the last is BLOB_CHUNK_BYTES long before compression.';
-- Compressed by the writer where it helps; a second time would only cost.
alter table fleet.blob_chunks alter column data set storage external;

select fleet.guard('fleet.blobs');
select fleet.guard('fleet.blob_chunks');

create function fleet.begin_blob() returns bigint
    language sql volatile security definer set search_path = pg_catalog as
$$
    select nextval('fleet.uploads'::regclass)
$$;
comment on function fleet.begin_blob is 'A number for an upload. What follows is one transaction, so a cut leaves nothing.';

create function fleet.add_chunk(upload bigint, number integer, zstd boolean, data bytea) returns void
    language plpgsql volatile security definer set search_path = pg_catalog as
$$
begin
    if exists (select from fleet.blobs b where b.upload = add_chunk.upload) then
        raise exception 'this blob is complete' using errcode = 'restrict_violation';
    end if;
    insert into fleet.blob_chunks values (upload, number, zstd, data);
end
$$;
comment on function fleet.add_chunk is 'The next chunk of an upload.';

create function fleet.finish_blob(digest text, size bigint, upload bigint) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog as
$$
begin
    insert into fleet.blobs values (digest, size, upload) on conflict do nothing;
    return found;
end
$$;
comment on function fleet.finish_blob is 'Names the upload; false if that content is here already, then the caller rolls back.';

create function fleet.put_blob(digest text, size bigint, zstd boolean, data bytea) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog as
$$
declare
    number bigint;
begin
    if exists (select from fleet.blobs b where b.digest = put_blob.digest) then
        return false;
    end if;
    number := nextval('fleet.uploads'::regclass);
    insert into fleet.blobs values (digest, size, number) on conflict do nothing;
    if found then
        insert into fleet.blob_chunks values (number, 0, zstd, data);
    end if;
    return found;
end
$$;
comment on function fleet.put_blob is 'A blob of one chunk, in one round trip.';
