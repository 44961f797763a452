-- One event's worth of bytes in one row, committed: what the server can do when nothing is guaranteed.
insert into pgbench_rows (session_id, type, payload)
values ('ses_00000000000000000000', 'CellPrinted', decode(repeat('78', 260), 'hex'));
