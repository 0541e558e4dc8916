"""Queries of ``pg_catalog`` for the definition of one table and its dependents; ``definition`` reads their rows."""

__all__ = ["TABLE", "COLUMNS", "INDEXES", "CONSTRAINTS", "GRANTS", "DEPENDENTS"]

TABLE = """
select c.oid, pg_get_userbyid(c.relowner),
       (c.relowner = r.oid or r.rolsuper) and has_schema_privilege(n.oid, 'create'),
       c.relpersistence::text,
       coalesce(c.reloptions, '{}') || coalesce((select array_agg('toast.' || o) from unnest(t.reloptions) o), '{}'),
       coalesce(m.amname::text, 'heap'), s.spcname::text, c.relreplident::text, obj_description(c.oid, 'pg_class')
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_roles r on r.rolname = current_user
  left join pg_class t on t.oid = c.reltoastrelid
  left join pg_am m on m.oid = c.relam
  left join pg_tablespace s on s.oid = c.reltablespace
 where n.nspname = %(schema)s and c.relname = %(table)s
"""

COLUMNS = """
select a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid),
       coalesce((select array_agg(u.attname::text) from pg_depend p
                   join pg_attribute u on u.attrelid = p.refobjid and u.attnum = p.refobjsubid
                  where p.classid = 'pg_attrdef'::regclass and p.objid = d.oid
                    and p.refclassid = 'pg_class'::regclass and p.refobjid = a.attrelid and u.attnum <> a.attnum), '{}'),
       case when a.attcollation <> t.typcollation then quote_ident(n.nspname) || '.' || quote_ident(l.collname) end,
       case when a.attstorage <> t.typstorage
            then case a.attstorage when 'p' then 'plain' when 'e' then 'external' when 'm' then 'main' else 'extended' end
       end,
       a.attcompression::text, nullif(a.attstattarget, -1), coalesce(a.attoptions, '{}'),
       col_description(a.attrelid, a.attnum)
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join pg_collation l on l.oid = a.attcollation
  left join pg_namespace n on n.oid = l.collnamespace
 where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped
 order by a.attnum
"""

INDEXES = """
select c.relname::text, i.indisunique, pg_get_indexdef(i.indexrelid),
       format('CREATE %%sINDEX %%I ON %%I.%%I ',
              case when i.indisunique then 'UNIQUE ' end, c.relname, n.nspname, t.relname),
       coalesce((select array_agg(a.attname::text) from pg_attribute a
                  where a.attrelid = i.indrelid
                    and (a.attnum = any (i.indkey)
                         or exists (select from pg_depend p
                                     where p.classid = 'pg_class'::regclass and p.objid = i.indexrelid
                                       and p.refclassid = 'pg_class'::regclass and p.refobjid = i.indrelid
                                       and p.refobjsubid = a.attnum))), '{}'),
       case when i.indisunique and i.indimmediate and i.indpred is null and i.indexprs is null
            then (select array_agg(a.attname::text) from pg_attribute a
                   where a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])) end,
       k.conname::text, k.contype::text, pg_get_constraintdef(k.oid),
       coalesce(k.contype in ('p', 'u') and not i.indisexclusion, false),
       case when k.condeferred then ' deferrable initially deferred' when k.condeferrable then ' deferrable' else '' end,
       s.spcname::text, i.indisclustered, i.indisreplident,
       obj_description(i.indexrelid, 'pg_class'), obj_description(k.oid, 'pg_constraint')
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
  join pg_class t on t.oid = i.indrelid
  join pg_namespace n on n.oid = t.relnamespace
  left join pg_tablespace s on s.oid = c.reltablespace
  left join pg_constraint k on k.conindid = i.indexrelid and k.conrelid = i.indrelid and k.contype in ('p', 'u', 'x')
 where i.indrelid = %(oid)s and i.indisvalid
 order by i.indexrelid
"""

CONSTRAINTS = """
select k.conname::text, k.contype = 'n', pg_get_constraintdef(k.oid),
       coalesce((select array_agg(a.attname::text) from pg_attribute a
                  where a.attrelid = k.conrelid and a.attnum = any (k.conkey)), '{}'),
       obj_description(k.oid, 'pg_constraint')
  from pg_constraint k
 where k.conrelid = %(oid)s and k.contype in ('c', 'n')
 order by k.contype desc, k.conname
"""

GRANTS = """
select null, r.rolname::text, x.privilege_type, x.is_grantable
  from pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
  left join pg_roles r on r.oid = x.grantee
 where c.oid = %(oid)s
union
select a.attname::text, r.rolname::text, x.privilege_type, x.is_grantable
  from pg_attribute a, aclexplode(a.attacl) x
  left join pg_roles r on r.oid = x.grantee
 where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped
"""

# A reload recreates indexes, checks, defaults and row type; everything else in pg_depend would be lost or would break.
DEPENDENTS = """
with it as (
    select c.*, t.typarray from pg_class c left join pg_type t on t.oid = c.reltype where c.oid = %(oid)s
)
select pg_describe_object(d.classid, d.objid, d.objsubid)
  from it, pg_depend d
 where (d.refclassid = 'pg_class'::regclass and d.refobjid = it.oid
        or d.refclassid = 'pg_type'::regclass and d.refobjid in (it.reltype, it.typarray))
   and not (d.classid = 'pg_type'::regclass and d.objid in (it.reltype, it.typarray))
   and not (d.classid = 'pg_class'::regclass
            and exists (select from pg_class c where c.oid = d.objid and c.relkind in ('i', 't')))
   and not (d.classid = 'pg_constraint'::regclass
            and exists (select from pg_constraint k where k.oid = d.objid and k.conrelid = it.oid
                           and k.contype in ('p', 'u', 'c', 'x', 'n')))
   and not (d.classid = 'pg_attrdef'::regclass
            and exists (select from pg_attrdef a where a.oid = d.objid and a.adrelid = it.oid))
union
select 'extension ' || e.extname from it, pg_depend d
  join pg_extension e on e.oid = d.refobjid
 where d.classid = 'pg_class'::regclass and d.objid = it.oid and d.refclassid = 'pg_extension'::regclass
union
select 'trigger ' || g.tgname from it, pg_trigger g where g.tgrelid = it.oid and not g.tgisinternal
union
select 'its partitions' from it where it.relkind = 'p'
union
select 'the table that it is a part of' from it, pg_inherits h where h.inhrelid = it.oid
union
select 'the type that it is made of' from it where it.reloftype <> 0
union
select 'row level security' from it where it.relrowsecurity or it.relforcerowsecurity
union
select 'a security label' from it, pg_seclabel l where l.classoid = 'pg_class'::regclass and l.objoid = it.oid
union
select 'publication ' || p.pubname from it, pg_namespace n, pg_publication_tables p
 where n.oid = it.relnamespace and p.schemaname = n.nspname and p.tablename = it.relname
union
select 'a subscription' from it, pg_subscription_rel s where s.srrelid = it.oid
 order by 1
"""
