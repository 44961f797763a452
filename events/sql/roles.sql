-- The owner of everything and the role that runs, neither of which can log in. Roles belong to the whole server, so
-- another database may be making them at this moment.
do $$
declare
    name text;
begin
    foreach name in array array['fleet_owner', 'fleet_app'] loop
        if not exists (select from pg_roles where rolname = name) then
            begin
                execute format('create role %I nologin', name);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        if not (select rolsuper from pg_roles where rolname = current_user) and not pg_has_role(name, 'member') then
            execute format('grant %I to current_user', name);
        end if;
    end loop;
end
$$;
