--
-- PostgreSQL database dump
--

\restrict X13AVxAF41ri6Rd5ECxcqLocXca4QjNgjtM71D8yjdR1ePXdRSXFtqaQEYXXqza

-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: deltarelay; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA deltarelay;


--
-- Name: deltarelay_anchor; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA deltarelay_anchor;


--
-- Name: erasure; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA erasure;


--
-- Name: keys; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA keys;


--
-- Name: never_changes(); Type: FUNCTION; Schema: deltarelay_anchor; Owner: -
--

CREATE FUNCTION deltarelay_anchor.never_changes() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    raise exception 'checkpoints are neither altered nor removed';
end
$$;


--
-- Name: only_grows(); Type: FUNCTION; Schema: deltarelay_anchor; Owner: -
--

CREATE FUNCTION deltarelay_anchor.only_grows() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'checkpoints are taken in read committed transactions, which see what others have committed'
            using errcode = 'feature_not_supported';
    end if;
    -- One at a time for each origin: the next one waits here, and then sees what this one has kept
    perform pg_advisory_xact_lock(hashtextextended(new.origin, tg_relid::bigint));
    if exists (select from "deltarelay_anchor"."checkpoint" where origin = new.origin and size > new.size)
        and not exists (select from "deltarelay_anchor"."checkpoint" where origin = new.origin and size = new.size) then
        raise exception 'there is a larger checkpoint already, and none of this size' using errcode = 'DR001';
    end if;
    new.published_at := clock_timestamp();
    new.published_by := session_user;
    return new;
end
$$;


--
-- Name: never_changes(); Type: FUNCTION; Schema: erasure; Owner: -
--

CREATE FUNCTION erasure.never_changes() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    raise exception 'what has happened is neither altered nor removed';
end
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: dead_letter; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay.dead_letter (
    id bigint NOT NULL,
    target text NOT NULL,
    pipeline text NOT NULL,
    source text NOT NULL,
    version bigint,
    committed_at timestamp with time zone,
    change text NOT NULL,
    reason text NOT NULL,
    sqlstate text,
    column_name text,
    constraint_name text,
    key_digest text NOT NULL,
    key text NOT NULL,
    "row" text,
    rejected_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: dead_letter_id_seq; Type: SEQUENCE; Schema: deltarelay; Owner: -
--

ALTER TABLE deltarelay.dead_letter ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME deltarelay.dead_letter_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: position; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay."position" (
    target text NOT NULL,
    pipeline text NOT NULL,
    source text NOT NULL,
    source_table_id text,
    version bigint,
    epoch bigint DEFAULT 0 NOT NULL,
    owner text,
    lease_until timestamp with time zone,
    updated_at timestamp with time zone,
    holds_rows boolean
);


--
-- Name: position_log; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay.position_log (
    id bigint NOT NULL,
    target text NOT NULL,
    pipeline text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    action text NOT NULL,
    from_version bigint,
    to_version bigint NOT NULL,
    os_user text NOT NULL,
    database_user text DEFAULT SESSION_USER NOT NULL,
    reason text
);


--
-- Name: position_log_id_seq; Type: SEQUENCE; Schema: deltarelay; Owner: -
--

ALTER TABLE deltarelay.position_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME deltarelay.position_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: progress; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay.progress (
    target text NOT NULL,
    at timestamp with time zone NOT NULL,
    figures jsonb NOT NULL
);


--
-- Name: runs; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay.runs (
    id bigint NOT NULL,
    target text NOT NULL,
    pipeline text NOT NULL,
    source text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kind text NOT NULL,
    first_version bigint,
    last_version bigint,
    rows_in bigint,
    inserts bigint,
    updates bigint,
    deletes bigint,
    conflicts bigint,
    change_bytes bigint,
    seconds jsonb NOT NULL,
    retries integer NOT NULL,
    code text,
    condition text
);


--
-- Name: runs_id_seq; Type: SEQUENCE; Schema: deltarelay; Owner: -
--

ALTER TABLE deltarelay.runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME deltarelay.runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: written_anew; Type: TABLE; Schema: deltarelay; Owner: -
--

CREATE TABLE deltarelay.written_anew (
    relation text NOT NULL,
    request text NOT NULL,
    written_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: checkpoint; Type: TABLE; Schema: deltarelay_anchor; Owner: -
--

CREATE TABLE deltarelay_anchor.checkpoint (
    origin text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    note text NOT NULL,
    published_at timestamp with time zone NOT NULL,
    published_by text NOT NULL,
    CONSTRAINT checkpoint_check CHECK (starts_with(note, (((origin || chr(10)) || (size)::text) || chr(10)))),
    CONSTRAINT checkpoint_size_check CHECK ((size >= 0))
);


--
-- Name: access; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.access (
    number bigint NOT NULL,
    request text NOT NULL,
    subject text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    role text DEFAULT SESSION_USER NOT NULL,
    reader text NOT NULL,
    digest text NOT NULL,
    counts jsonb NOT NULL
);


--
-- Name: access_number_seq; Type: SEQUENCE; Schema: erasure; Owner: -
--

ALTER TABLE erasure.access ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME erasure.access_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: carrier; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.carrier (
    pipeline text NOT NULL,
    table_name text NOT NULL,
    target text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: certificate; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.certificate (
    request text NOT NULL,
    issued_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    document jsonb NOT NULL,
    supersedes timestamp with time zone
);


--
-- Name: event; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.event (
    number bigint NOT NULL,
    request text NOT NULL,
    state text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    facts jsonb NOT NULL
);


--
-- Name: event_number_seq; Type: SEQUENCE; Schema: erasure; Owner: -
--

ALTER TABLE erasure.event ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME erasure.event_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: known; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.known (
    request text NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL,
    sealed bytea NOT NULL
);


--
-- Name: lease; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.lease (
    one boolean DEFAULT true NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    run text,
    holder text,
    taken_at timestamp with time zone,
    expires_at timestamp with time zone,
    CONSTRAINT lease_one_check CHECK (one)
);


--
-- Name: mark; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.mark (
    mark bytea NOT NULL,
    subject text NOT NULL,
    name text NOT NULL,
    request text NOT NULL,
    run text NOT NULL,
    until date NOT NULL,
    released_at timestamp with time zone,
    released_by text,
    released_reason text
);


--
-- Name: register; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.register (
    one boolean DEFAULT true NOT NULL,
    identity text DEFAULT (gen_random_uuid())::text NOT NULL,
    keys bytea,
    CONSTRAINT register_one_check CHECK (one)
);


--
-- Name: request; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.request (
    id text NOT NULL,
    subject text NOT NULL,
    state text NOT NULL,
    reached text NOT NULL,
    run text,
    received date NOT NULL,
    due date NOT NULL,
    legal_basis text NOT NULL,
    requester text NOT NULL,
    approver text,
    sealed bytea,
    digest bytea NOT NULL,
    waits_until timestamp with time zone,
    waits_for text,
    reason text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: run; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.run (
    id text NOT NULL,
    plan_digest text NOT NULL,
    plan jsonb,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone
);


--
-- Name: step; Type: TABLE; Schema: erasure; Owner: -
--

CREATE TABLE erasure.step (
    run text NOT NULL,
    table_name text NOT NULL,
    step text NOT NULL,
    facts jsonb NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: epoch; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.epoch (
    epoch integer NOT NULL,
    root text NOT NULL,
    began_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    root_gone_on date,
    mac bytea
);


--
-- Name: identifier; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.identifier (
    lookup bytea NOT NULL,
    token bytea NOT NULL,
    epoch integer NOT NULL,
    mac bytea NOT NULL
);


--
-- Name: key; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.key (
    key_id bytea NOT NULL,
    token bytea NOT NULL,
    class text NOT NULL,
    epoch integer NOT NULL,
    wrapped bytea,
    commitment bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    shredded_at timestamp with time zone,
    shredded_by text,
    CONSTRAINT key_check CHECK (((wrapped IS NULL) = (shredded_at IS NOT NULL)))
);


--
-- Name: lookup_key; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.lookup_key (
    one boolean DEFAULT true NOT NULL,
    epoch integer NOT NULL,
    wrapped bytea NOT NULL,
    CONSTRAINT lookup_key_one_check CHECK (one)
);


--
-- Name: reading; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.reading (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    role text DEFAULT SESSION_USER NOT NULL,
    reader text NOT NULL,
    purpose text NOT NULL,
    question text NOT NULL,
    trail text NOT NULL,
    keys bigint NOT NULL,
    noted_at timestamp with time zone
);


--
-- Name: reading_id_seq; Type: SEQUENCE; Schema: keys; Owner: -
--

ALTER TABLE keys.reading ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME keys.reading_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: shard; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.shard (
    epoch integer NOT NULL,
    shard smallint NOT NULL,
    wrapped bytea NOT NULL
);


--
-- Name: shreds; Type: TABLE; Schema: keys; Owner: -
--

CREATE TABLE keys.shreds (
    one boolean DEFAULT true NOT NULL,
    count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT shreds_one_check CHECK (one)
);


--
-- Name: customers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.customers (
    no bigint NOT NULL,
    customer_id bigint,
    email text,
    segment text,
    note text
)
WITH (fillfactor='70');


--
-- Name: TABLE customers; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.customers IS 'made and kept by deltarelay';


--
-- Name: orders; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.orders (
    id bigint NOT NULL,
    name text,
    amount numeric(10,2),
    CONSTRAINT short CHECK ((length(name) < 6))
);


--
-- Data for Name: dead_letter; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay.dead_letter (id, target, pipeline, source, version, committed_at, change, reason, sqlstate, column_name, constraint_name, key_digest, key, "row", rejected_at) FROM stdin;
1	public.orders	orders	@PROJECT@/tables/orders	1	2026-11-26 17:48:23.368+00	insert	a check constraint is not met	23514	\N	short	5f649e24afcd658ccf64513a5ce71950	{"id" : "3"}	{"id" : "3", "name" : "far too long", "amount" : "3.30"}	2026-11-26 17:49:51.705068+00
\.


--
-- Data for Name: position; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay."position" (target, pipeline, source, source_table_id, version, epoch, owner, lease_until, updated_at, holds_rows) FROM stdin;
public.orders	orders	@PROJECT@/tables/orders	e0a88c8e-6fbf-4de6-bd8d-d6034b6f55ab	3	4	\N	\N	2026-11-26 17:51:01.794984+00	t
public.customers	customers	@PROJECT@/tables/customers	c79a3b22-d572-42d0-8eb7-169171030577	6	5	\N	\N	2026-11-26 17:58:49.861239+00	t
\.


--
-- Data for Name: position_log; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay.position_log (id, target, pipeline, at, action, from_version, to_version, os_user, database_user, reason) FROM stdin;
\.


--
-- Data for Name: progress; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay.progress (target, at, figures) FROM stdin;
\.


--
-- Data for Name: runs; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay.runs (id, target, pipeline, source, started_at, ended_at, kind, first_version, last_version, rows_in, inserts, updates, deletes, conflicts, change_bytes, seconds, retries, code, condition) FROM stdin;
1	public.orders	orders	@PROJECT@/tables/orders	2026-11-26 17:49:03.171963+00	2026-11-26 17:49:41.092061+00	load	0	0	\N	0	0	0	0	\N	{"copy": 37.8985, "apply": 0.0216}	0	\N	\N
2	public.customers	customers	@PROJECT@/tables/customers	2026-11-26 17:49:03.373766+00	2026-11-26 17:49:50.796353+00	load	1	1	3	3	0	0	0	\N	{"copy": 47.4039, "apply": 0.0187}	0	\N	\N
3	public.orders	orders	@PROJECT@/tables/orders	2026-11-26 17:49:42.822691+00	2026-11-26 17:49:51.743619+00	window	1	1	3	3	0	0	0	2005	{"apply": 0.1842, "stage": 8.7367}	0	\N	\N
4	public.customers	customers	@PROJECT@/tables/customers	2026-11-26 17:50:50.560431+00	2026-11-26 17:51:01.820857+00	window	2	3	2	0	1	0	0	2190	{"apply": 0.0339, "stage": 11.2265}	0	\N	\N
5	public.orders	orders	@PROJECT@/tables/orders	2026-11-26 17:50:50.481366+00	2026-11-26 17:51:01.821166+00	window	2	3	3	0	1	1	0	3069	{"apply": 0.068, "stage": 11.2718}	0	\N	\N
6	public.customers	customers	@PROJECT@/tables/customers	2026-11-26 17:54:49.401247+00	2026-11-26 17:54:51.185374+00	window	4	4	2	0	0	2	0	2067	{"apply": 0.0202, "stage": 1.7639}	0	\N	\N
7	public.customers	customers	@PROJECT@/tables/customers	2026-11-26 17:58:49.793912+00	2026-11-26 17:58:49.861959+00	window	5	6	0	0	0	0	0	0	{"apply": 0.0157, "stage": 0.0523}	0	\N	\N
\.


--
-- Data for Name: written_anew; Type: TABLE DATA; Schema: deltarelay; Owner: -
--

COPY deltarelay.written_anew (relation, request, written_at) FROM stdin;
public.customers	DSR-1	2026-11-26 17:57:28.590335+00
public.customers	DSR-2	2026-11-26 17:57:28.590435+00
deltarelay.dead_letter	DSR-1	2026-11-26 17:57:28.592+00
deltarelay.dead_letter	DSR-2	2026-11-26 17:57:28.592027+00
pg_catalog.pg_statistic	DSR-1	2026-11-26 17:57:28.593441+00
pg_catalog.pg_statistic	DSR-2	2026-11-26 17:57:28.593468+00
pg_catalog.pg_statistic_ext_data	DSR-1	2026-11-26 17:57:28.594899+00
pg_catalog.pg_statistic_ext_data	DSR-2	2026-11-26 17:57:28.594926+00
\.


--
-- Data for Name: checkpoint; Type: TABLE DATA; Schema: deltarelay_anchor; Owner: -
--

COPY deltarelay_anchor.checkpoint (origin, size, note, published_at, published_by) FROM stdin;
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	2	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n2\npOKJue/EKQXicyg7xSH6mIwhdC+fQh+UBeyOyz1C/0I=\n\n— example.org/audit J9m5CTojssXHo+dpgG5beF2h8keFj4l34RuWqmGmlVPGSVFfxNbeW0+8aoXrQTke1mLdaSYMmfbARXz9T778V54WsgE=\n	2026-11-26 17:50:11.842137+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	4	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n4\nInuK1SzoF6UjX1yqf8+U8ldDIouhaKo4OQYv+0tjRCc=\n\n— example.org/audit J9m5CTusDx+d3S/djQgBpenC9VuBEvPLbtaFgsCJcZcL0gYX8SWgGoqtQzytKy+2K/IXQxnIOobkBCtSf/4EzMZmMQw=\n	2026-11-26 17:51:50.27434+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	9	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n9\nimxzPfeNj4Z9l+64FpbYn+/G7UPMmU1EsSMCbChtENs=\n\n— example.org/audit J9m5Casc1nDsgGUyJB+EbcYlMKD4gAYMwUVaxgMrtt49Dkc8Y3w6fsXE6Uq6tvlK83aX30/RoDPQvN+GHUMQGU9qbQ8=\n	2026-11-26 17:54:10.751539+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	10	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n10\njL1r32OyJpC/RQsxbgRMgBtOBjIPOjSYRn5PCtPbGbM=\n\n— example.org/audit J9m5CZOGrrbca3JTM/Apjk3S9WQQRkPJKsPy95PGkdrYc+jke2ZyRHCExjZDTEJorpmY1UhJp9oPfeCagz9d1EN37gE=\n	2026-11-26 17:55:20.598921+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	11	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n11\nTbVJtA8OnfyI+LT/ZRxhyctVyc/iTEnZMg5URDt9+yk=\n\n— example.org/audit J9m5CfPWcvhv4dZpE2xaBQ7ytIWHMIA23d81xVLZkFfQ5vzYrPNQmLjCE4Cv8yB9bcj/wbaZ+2eWy7H10imsoRvONgU=\n	2026-11-26 17:57:11.29552+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	12	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n12\n9wjGg5eVvgQm9eoTJtTGBzq1SU+C2LeDD9+wU+iQKmY=\n\n— example.org/audit J9m5CXQXq1NvPA8Vb8aVKzuNpFp9wDxvBAqMsRaCwWry4cNsoTmIk4ye+4uD4cSLPA6mskH60MCIPBoQ/QCrR/wZcA8=\n	2026-11-26 17:57:28.371208+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	13	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n13\nrVt6F5zaw+4sa7dvYll2tY7D09mSPTnlKOOXrGQ2pQA=\n\n— example.org/audit J9m5CSU00ZZYbinYTjE+zrI8NkPJgCZ6aeBJONkdRleYzB6HOW/TeEjPhYkOkYgnlkcoXjEXUILpapbywwnKjC3uCwc=\n	2026-11-26 17:58:23.095171+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	15	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n15\nBmmA0loLVGgSM+4AMxjAaddZW8k5HNxOpn/7JuFdDEE=\n\n— example.org/audit J9m5CR4cE5f76mU7llKOJ7STVnEOayENWMPwcCjlE+q+PmPjpoSQ7c3wotXKvQX4xrCdJpIhfV0xnMcSpMoAnntXrQE=\n	2026-11-26 17:59:44.255786+00	postgres
deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7	18	deltarelay.audit/dd23884a-ed1e-458f-9dad-0c892326f3c7\n18\nL0s3p6zEXuQnK6jbYqSfLYMyyVVCht0b/tMEjVhkpQo=\n\n— example.org/audit J9m5Caa6R/FxvU7WhCbpQMqnsoZJ2OS0hRbvb7fIagNXYS1QrBSDPaQIfKLnjI1/liDstkGsQQH7eAZTcDpjfEdGLgM=\n	2026-11-26 18:01:13.784971+00	postgres
\.


--
-- Data for Name: access; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.access (number, request, subject, at, role, reader, digest, counts) FROM stdin;
\.


--
-- Data for Name: carrier; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.carrier (pipeline, table_name, target, since) FROM stdin;
customers	@PROJECT@/tables/customers	"public"."customers" of warehouse (postgres)	2026-11-26 17:49:03.232167+00
trail	@PROJECT@/tables/customers	customers of trails (delta_audit)	2026-11-26 17:50:01.003902+00
orders	@PROJECT@/tables/orders	"public"."orders" of warehouse (postgres)	2026-11-26 17:52:14.421374+00
\.


--
-- Data for Name: certificate; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.certificate (request, issued_at, document, supersedes) FROM stdin;
DSR-1	2026-11-26 18:00:51.74902+00	{"run": "er-20261126-4aa3cc69", "scan": {"finds": 0, "checked": [{"what": "checkpoint of @PROJECT@/tables/customers", "bytes": 31167, "count": 2}, {"what": "checksum of @PROJECT@/tables/customers", "bytes": 8498, "count": 3}, {"what": "data of @PROJECT@/tables/customers", "bytes": 1552, "count": 1}, {"what": "log of @PROJECT@/tables/customers", "bytes": 1940, "count": 3}, {"what": "other of @PROJECT@/tables/customers", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/tables/customers", "bytes": 440, "count": 10}, {"what": "current rows of public.customers", "bytes": 29, "count": 1}, {"what": "dead letters of deltarelay.dead_letter", "bytes": 0, "count": 0}, {"what": "planner statistics of public.customers", "bytes": 0, "count": 9}, {"what": "pages of public.customers", "bytes": 32768, "count": 4}, {"what": "pages of deltarelay.dead_letter", "bytes": 49152, "count": 5}, {"what": "pages of pg_catalog.pg_statistic", "bytes": 262144, "count": 4}, {"what": "pages of pg_catalog.pg_statistic_ext_data", "bytes": 16384, "count": 4}, {"what": "checkpoint of @PROJECT@/trails/customers/payload", "bytes": 33534, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/payload", "bytes": 23555, "count": 5}, {"what": "data of @PROJECT@/trails/customers/payload", "bytes": 20708, "count": 4}, {"what": "log of @PROJECT@/trails/customers/payload", "bytes": 2580, "count": 5}, {"what": "other of @PROJECT@/trails/customers/payload", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/trails/customers/payload", "bytes": 808, "count": 17}, {"what": "checkpoint of @PROJECT@/trails/customers/events", "bytes": 29986, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/events", "bytes": 41727, "count": 11}, {"what": "data of @PROJECT@/trails/customers/events", "bytes": 20329, "count": 11}, {"what": "log of @PROJECT@/trails/customers/events", "bytes": 8732, "count": 11}, {"what": "side file of @PROJECT@/trails/customers/events", "bytes": 1164, "count": 35}, {"what": "checkpoint of @PROJECT@/trails/customers/ledger", "bytes": 29826, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/ledger", "bytes": 72182, "count": 16}, {"what": "data of @PROJECT@/trails/customers/ledger", "bytes": 58789, "count": 16}, {"what": "log of @PROJECT@/trails/customers/ledger", "bytes": 15070, "count": 16}, {"what": "side file of @PROJECT@/trails/customers/ledger", "bytes": 1880, "count": 50}]}, "holds": [], "sinks": [{"rows": 0, "table": "@PROJECT@/tables/customers", "pipeline": "customers", "counted_for": "all 2 requests of the run", "dead letters": 0, "staging tables": 0}, {"table": "@PROJECT@/tables/customers", "pipeline": "trail", "counted_for": "all 2 requests of the run", "values removed": 2, "sealed values removed": 2}], "format": "deltarelay erasure certificate v1", "purges": [{"place": "pipeline customers", "counted_for": "all 2 requests of the run", "tables vacuumed": 2, "tables written anew": 4}, {"files": 9, "place": "pipeline trail", "folders": 0, "counted_for": "all 2 requests of the run", "log entries": 10}, {"files": 5, "place": "@PROJECT@/tables/customers", "folders": 0, "counted_for": "all 2 requests of the run", "log entries": 6}], "tables": [{"rows": 1, "table": "@PROJECT@/tables/customers", "on_erase": "delete", "versions": [4]}], "outcome": "erased", "pending": [], "request": {"id": "DSR-1", "due": "2026-12-26", "subject": "customer", "approver": null, "received": "2026-11-26", "legal_basis": "GDPR Art. 17"}, "evidence": [{"at": "2026-11-26T17:53:50.696525Z", "step": "resolve", "sha256": "7e1ce18cede0d386b1987b8a06eb4e4eeb95fe92e7c7817f0e42b0d641a418f1"}, {"at": "2026-11-26T17:53:53.596545Z", "step": "deleting", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:53:53.632279Z", "step": "shred of", "sha256": "db5213da956cbbe89c7221a8a38357d5ce37c535bf2efb06e4120023cd0b9e52"}, {"at": "2026-11-26T17:53:53.673614Z", "step": "shred", "sha256": "d486fdb1d4c264b740d4c1fdf37743142572b6e049125526d6bbdc5ff2675e04"}, {"at": "2026-11-26T17:53:58.565053Z", "step": "delete @PROJECT@/tables/customers", "sha256": "7f578bbbd63a3d9b403be259d8d371d3b596734fdc72ebad938cd9e59d6ce718"}, {"at": "2026-11-26T17:55:37.650468Z", "step": "shred again of", "sha256": "190eea7e6649f09a2431cdbe62e2ec6976d4cca7b86e820047762f315fb02d29"}, {"at": "2026-11-26T17:55:37.697222Z", "step": "shred again", "sha256": "d486fdb1d4c264b740d4c1fdf37743142572b6e049125526d6bbdc5ff2675e04"}, {"at": "2026-11-26T17:55:37.764127Z", "step": "forgetting pipeline customers", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:55:59.666608Z", "step": "forget pipeline customers", "sha256": "765448559a0c270282e4d480662efaf6372e21fffde375642edb07436c246895"}, {"at": "2026-11-26T17:55:59.723183Z", "step": "forgetting pipeline trail", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:57:28.390095Z", "step": "forget pipeline trail", "sha256": "3bf985e8de9df4ee9bbca0e82347bb675d21765edebe591bb94809deaacb69fe"}, {"at": "2026-11-26T17:57:28.605723Z", "step": "purging pipeline customers", "sha256": "5f7323c3b667fa2d37d5c55f7eea70b9cde998d70207ab6459a6a59f0e537030"}, {"at": "2026-11-26T17:57:28.613348Z", "step": "purge pipeline customers", "sha256": "aba4f96a23d1ab4f4632b59c1f5a7ea2fd1a24675cbb496458f9a96baaa3c94d"}, {"at": "2026-11-26T17:57:57.335275Z", "step": "purging pipeline trail", "sha256": "5f0754d96a1a6b983c0f18a9ad4ae55e0ca257328e731a2c9fed95fee80cad15"}, {"at": "2026-11-26T17:57:57.347617Z", "step": "purge pipeline trail", "sha256": "09fa43ea20deaa46b2fea7c3031cd1cb9488a2899d387e205de71e1f3aa4155b"}, {"at": "2026-11-26T18:00:37.285654Z", "step": "purging @PROJECT@/tables/customers", "sha256": "73d90d284584d8bb94751b47af08d4ac3a7d0c4e2b41e997f3f769d33424d53b"}, {"at": "2026-11-26T18:00:37.295007Z", "step": "purge @PROJECT@/tables/customers", "sha256": "f2c13436497bde835d979fc92a9a47f8aa572a630f56883c88ee597d97aa761d"}, {"at": "2026-11-26T18:00:38.960470Z", "step": "scan request DSR-1", "sha256": "40d35eae6c39a682a60b0d36586f9687a950b2bb832713ed4845ff66f85a0c8d"}], "issued_at": "2026-11-26T18:00:04.685346Z", "signature": {"id": "12349a4d", "key": "example.org/erasure", "ed25519": "z2h+zlTFv0nc3UZ8o3ZkZ/LPsf12Sgfkxkm07UP70AfxlTkAPwu0RYk1kDQbbyQpFLAl8cFaZpU+CVXWWa97Bg=="}, "unverified": [], "out_of_reach": ["the file or message in which the request was received, with the person's identifiers in clear, and its copies: to be deleted by those who keep them", "backups of the registry of keys from before, under the root key file:8ed04890: until the day on which that is destroyed, once `deltarelay keys rotate` has gone to another", "base backups and dumps: until they are rotated", "standbys' own backups, logical subscribers and change streams of the target", "the server's log, where it logs statements or failing rows", "write-ahead log and its archive: until they are recycled"]}	\N
DSR-2	2026-11-26 18:00:51.749813+00	{"run": "er-20261126-4aa3cc69", "scan": {"finds": 0, "checked": [{"what": "checkpoint of @PROJECT@/tables/customers", "bytes": 31167, "count": 2}, {"what": "checksum of @PROJECT@/tables/customers", "bytes": 8498, "count": 3}, {"what": "data of @PROJECT@/tables/customers", "bytes": 1552, "count": 1}, {"what": "log of @PROJECT@/tables/customers", "bytes": 1940, "count": 3}, {"what": "other of @PROJECT@/tables/customers", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/tables/customers", "bytes": 440, "count": 10}, {"what": "current rows of public.customers", "bytes": 29, "count": 1}, {"what": "dead letters of deltarelay.dead_letter", "bytes": 0, "count": 0}, {"what": "planner statistics of public.customers", "bytes": 0, "count": 9}, {"what": "pages of public.customers", "bytes": 32768, "count": 4}, {"what": "pages of deltarelay.dead_letter", "bytes": 49152, "count": 5}, {"what": "pages of pg_catalog.pg_statistic", "bytes": 262144, "count": 4}, {"what": "pages of pg_catalog.pg_statistic_ext_data", "bytes": 16384, "count": 4}, {"what": "checkpoint of @PROJECT@/trails/customers/payload", "bytes": 33534, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/payload", "bytes": 23555, "count": 5}, {"what": "data of @PROJECT@/trails/customers/payload", "bytes": 20708, "count": 4}, {"what": "log of @PROJECT@/trails/customers/payload", "bytes": 2580, "count": 5}, {"what": "other of @PROJECT@/trails/customers/payload", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/trails/customers/payload", "bytes": 808, "count": 17}, {"what": "checkpoint of @PROJECT@/trails/customers/events", "bytes": 29986, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/events", "bytes": 41727, "count": 11}, {"what": "data of @PROJECT@/trails/customers/events", "bytes": 20329, "count": 11}, {"what": "log of @PROJECT@/trails/customers/events", "bytes": 8732, "count": 11}, {"what": "side file of @PROJECT@/trails/customers/events", "bytes": 1164, "count": 35}, {"what": "checkpoint of @PROJECT@/trails/customers/ledger", "bytes": 29826, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/ledger", "bytes": 72182, "count": 16}, {"what": "data of @PROJECT@/trails/customers/ledger", "bytes": 58789, "count": 16}, {"what": "log of @PROJECT@/trails/customers/ledger", "bytes": 15070, "count": 16}, {"what": "side file of @PROJECT@/trails/customers/ledger", "bytes": 1880, "count": 50}]}, "holds": [], "sinks": [{"rows": 0, "table": "@PROJECT@/tables/customers", "pipeline": "customers", "counted_for": "all 2 requests of the run", "dead letters": 0, "staging tables": 0}, {"table": "@PROJECT@/tables/customers", "pipeline": "trail", "counted_for": "all 2 requests of the run", "values removed": 2, "sealed values removed": 2}], "format": "deltarelay erasure certificate v1", "purges": [{"place": "pipeline customers", "counted_for": "all 2 requests of the run", "tables vacuumed": 2, "tables written anew": 4}, {"files": 9, "place": "pipeline trail", "folders": 0, "counted_for": "all 2 requests of the run", "log entries": 10}, {"files": 5, "place": "@PROJECT@/tables/customers", "folders": 0, "counted_for": "all 2 requests of the run", "log entries": 6}], "tables": [{"rows": 1, "table": "@PROJECT@/tables/customers", "on_erase": "delete", "versions": [4]}], "outcome": "erased", "pending": [], "request": {"id": "DSR-2", "due": "2026-12-26", "subject": "customer", "approver": null, "received": "2026-11-26", "legal_basis": "GDPR Art. 17"}, "evidence": [{"at": "2026-11-26T17:53:50.696525Z", "step": "resolve", "sha256": "7e1ce18cede0d386b1987b8a06eb4e4eeb95fe92e7c7817f0e42b0d641a418f1"}, {"at": "2026-11-26T17:53:53.596545Z", "step": "deleting", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:53:53.632279Z", "step": "shred of", "sha256": "db5213da956cbbe89c7221a8a38357d5ce37c535bf2efb06e4120023cd0b9e52"}, {"at": "2026-11-26T17:53:53.673614Z", "step": "shred", "sha256": "d486fdb1d4c264b740d4c1fdf37743142572b6e049125526d6bbdc5ff2675e04"}, {"at": "2026-11-26T17:53:58.565053Z", "step": "delete @PROJECT@/tables/customers", "sha256": "7f578bbbd63a3d9b403be259d8d371d3b596734fdc72ebad938cd9e59d6ce718"}, {"at": "2026-11-26T17:55:37.650468Z", "step": "shred again of", "sha256": "190eea7e6649f09a2431cdbe62e2ec6976d4cca7b86e820047762f315fb02d29"}, {"at": "2026-11-26T17:55:37.697222Z", "step": "shred again", "sha256": "d486fdb1d4c264b740d4c1fdf37743142572b6e049125526d6bbdc5ff2675e04"}, {"at": "2026-11-26T17:55:37.764127Z", "step": "forgetting pipeline customers", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:55:59.666608Z", "step": "forget pipeline customers", "sha256": "765448559a0c270282e4d480662efaf6372e21fffde375642edb07436c246895"}, {"at": "2026-11-26T17:55:59.723183Z", "step": "forgetting pipeline trail", "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, {"at": "2026-11-26T17:57:28.390095Z", "step": "forget pipeline trail", "sha256": "3bf985e8de9df4ee9bbca0e82347bb675d21765edebe591bb94809deaacb69fe"}, {"at": "2026-11-26T17:57:28.605723Z", "step": "purging pipeline customers", "sha256": "5f7323c3b667fa2d37d5c55f7eea70b9cde998d70207ab6459a6a59f0e537030"}, {"at": "2026-11-26T17:57:28.613348Z", "step": "purge pipeline customers", "sha256": "aba4f96a23d1ab4f4632b59c1f5a7ea2fd1a24675cbb496458f9a96baaa3c94d"}, {"at": "2026-11-26T17:57:57.335275Z", "step": "purging pipeline trail", "sha256": "5f0754d96a1a6b983c0f18a9ad4ae55e0ca257328e731a2c9fed95fee80cad15"}, {"at": "2026-11-26T17:57:57.347617Z", "step": "purge pipeline trail", "sha256": "09fa43ea20deaa46b2fea7c3031cd1cb9488a2899d387e205de71e1f3aa4155b"}, {"at": "2026-11-26T18:00:37.285654Z", "step": "purging @PROJECT@/tables/customers", "sha256": "73d90d284584d8bb94751b47af08d4ac3a7d0c4e2b41e997f3f769d33424d53b"}, {"at": "2026-11-26T18:00:37.295007Z", "step": "purge @PROJECT@/tables/customers", "sha256": "f2c13436497bde835d979fc92a9a47f8aa572a630f56883c88ee597d97aa761d"}, {"at": "2026-11-26T18:00:39.010058Z", "step": "scan request DSR-2", "sha256": "40d35eae6c39a682a60b0d36586f9687a950b2bb832713ed4845ff66f85a0c8d"}], "issued_at": "2026-11-26T18:00:04.685346Z", "signature": {"id": "12349a4d", "key": "example.org/erasure", "ed25519": "HIGpBRzVULmaKwlml0PCBPI77m5R5l2f3DolFie5ha0PRtIEt6+xrMhSVm36ICJmZcstglQNrSMVmIcrm6JIDg=="}, "unverified": [], "out_of_reach": ["the file or message in which the request was received, with the person's identifiers in clear, and its copies: to be deleted by those who keep them", "backups of the registry of keys from before, under the root key file:8ed04890: until the day on which that is destroyed, once `deltarelay keys rotate` has gone to another", "base backups and dumps: until they are rotated", "standbys' own backups, logical subscribers and change streams of the target", "the server's log, where it logs statements or failing rows", "write-ahead log and its archive: until they are recycled"]}	\N
\.


--
-- Data for Name: event; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.event (number, request, state, at, facts) FROM stdin;
1	DSR-1	received	2026-11-26 17:51:53.616069+00	{}
2	DSR-2	received	2026-11-26 17:51:53.616242+00	{}
3	DSR-1	received	2026-11-26 17:53:07.725848+00	{"run": "er-20261126-4aa3cc69", "plan": "de48f0fc143294949e8777201dd8e9a5d7a8684ae2a3eaf555dd3ed45a8bce69"}
4	DSR-2	received	2026-11-26 17:53:07.725903+00	{"run": "er-20261126-4aa3cc69", "plan": "de48f0fc143294949e8777201dd8e9a5d7a8684ae2a3eaf555dd3ed45a8bce69"}
5	DSR-1	resolved	2026-11-26 17:53:50.722089+00	{"run": "er-20261126-4aa3cc69"}
6	DSR-2	resolved	2026-11-26 17:53:50.722149+00	{"run": "er-20261126-4aa3cc69"}
7	DSR-1	approved	2026-11-26 17:53:50.735833+00	{"run": "er-20261126-4aa3cc69"}
8	DSR-2	approved	2026-11-26 17:53:50.735885+00	{"run": "er-20261126-4aa3cc69"}
9	DSR-1	shredded	2026-11-26 17:53:53.686932+00	{"run": "er-20261126-4aa3cc69"}
10	DSR-2	shredded	2026-11-26 17:53:53.686987+00	{"run": "er-20261126-4aa3cc69"}
11	DSR-1	deleted	2026-11-26 17:53:58.608481+00	{"run": "er-20261126-4aa3cc69"}
12	DSR-2	deleted	2026-11-26 17:53:58.608547+00	{"run": "er-20261126-4aa3cc69"}
13	DSR-1	propagated	2026-11-26 17:57:28.406956+00	{"run": "er-20261126-4aa3cc69"}
14	DSR-2	propagated	2026-11-26 17:57:28.407023+00	{"run": "er-20261126-4aa3cc69"}
15	DSR-1	purged	2026-11-26 18:00:37.329352+00	{"run": "er-20261126-4aa3cc69"}
16	DSR-2	purged	2026-11-26 18:00:37.32947+00	{"run": "er-20261126-4aa3cc69"}
17	DSR-1	verified	2026-11-26 18:00:39.04078+00	{"run": "er-20261126-4aa3cc69"}
18	DSR-2	verified	2026-11-26 18:00:39.040914+00	{"run": "er-20261126-4aa3cc69"}
19	DSR-1	certified	2026-11-26 18:00:51.743547+00	{"run": "er-20261126-4aa3cc69"}
20	DSR-2	certified	2026-11-26 18:00:51.743655+00	{"run": "er-20261126-4aa3cc69"}
\.


--
-- Data for Name: known; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.known (request, name, digest, sealed) FROM stdin;
\.


--
-- Data for Name: lease; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.lease (one, epoch, run, holder, taken_at, expires_at) FROM stdin;
t	6	\N	\N	\N	\N
\.


--
-- Data for Name: mark; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.mark (mark, subject, name, request, run, until, released_at, released_by, released_reason) FROM stdin;
\\x92f4686d4fce6a9576d355700e1acc7cb7d0cac061c7c35f3e8d3f1b60c3de8d	customer	email	DSR-1	er-20261126-4aa3cc69	2027-11-26	\N	\N	\N
\\x3a1f0d3ff19e41a8c61e4d43304b43d8adc962cbb8f3f94f5b61e14bc51f872c	customer	customer_id	DSR-1	er-20261126-4aa3cc69	2027-11-26	\N	\N	\N
\\xf38fc39115ca22436792e79d231504e316af817caf28d0c58278086af02f6ffd	customer	email	DSR-2	er-20261126-4aa3cc69	2027-11-26	\N	\N	\N
\\xbf2cdc7141f9539b5c6162c087127cc1177d9f8b0b979819a1ae78dc49657505	customer	customer_id	DSR-2	er-20261126-4aa3cc69	2027-11-26	\N	\N	\N
\.


--
-- Data for Name: register; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.register (one, identity, keys) FROM stdin;
t	3cc794a3-75ac-445b-ab28-aee2c472e71c	\\x7a74678f1e3243c2a327fd36dcbb815b02d566d52bd335e0d7bcb6def9d398fe
\.


--
-- Data for Name: request; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.request (id, subject, state, reached, run, received, due, legal_basis, requester, approver, sealed, digest, waits_until, waits_for, reason, changed_at) FROM stdin;
DSR-1	customer	certified	certified	er-20261126-4aa3cc69	2026-11-26	2026-12-26	GDPR Art. 17	privacy desk	\N	\N	\\xbca2736d3eb14ef0b2b5a53e25b02326079c72bf4d7f1d17148967b1cbf20c56	\N	\N	\N	2026-11-26 18:00:51.742672+00
DSR-2	customer	certified	certified	er-20261126-4aa3cc69	2026-11-26	2026-12-26	GDPR Art. 17	privacy desk	\N	\N	\\x1c65f7609018c6859b4854774eb953effdf90cdb11ce0400c17c6aae0cc55936	\N	\N	\N	2026-11-26 18:00:51.742758+00
\.


--
-- Data for Name: run; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.run (id, plan_digest, plan, created_at, finished_at) FROM stdin;
er-20261126-4aa3cc69	de48f0fc143294949e8777201dd8e9a5d7a8684ae2a3eaf555dd3ed45a8bce69	{"run": "er-20261126-4aa3cc69", "sinks": [{"table": "@PROJECT@/tables/customers", "forgets": true, "pipeline": "customers", "position": 3}, {"table": "@PROJECT@/tables/customers", "forgets": true, "pipeline": "trail", "position": 3}], "tables": [{"rows": {"DSR-1": 1, "DSR-2": 1}, "files": 1, "table": "@PROJECT@/tables/customers", "version": 3, "held_for": null, "on_erase": "delete", "held_until": null, "log_gone_on": "2026-12-26", "files_gone_on": "2026-12-03"}], "problems": [], "requests": ["DSR-1", "DSR-2"], "warnings": ["pipeline orders carries @PROJECT@/tables/orders, which `erasure.tables` does not have: nothing is looked for in it"], "not_found": [], "created_at": "2026-11-26T17:52:14.441464Z", "needs_approval": {}}	2026-11-26 17:53:07.72391+00	2026-11-26 18:01:13.824886+00
\.


--
-- Data for Name: step; Type: TABLE DATA; Schema: erasure; Owner: -
--

COPY erasure.step (run, table_name, step, facts, at) FROM stdin;
er-20261126-4aa3cc69		resolve	{"mac": "f89962f2ca97792e40d853e17e724d6b61d70e80f7616959ef1ee10779ccae8b", "rows": {"@PROJECT@/tables/customers": {"DSR-1": 1, "DSR-2": 1}}, "people": {"@PROJECT@/tables/customers": "customer_id"}, "versions": {"@PROJECT@/tables/customers": 3}}	2026-11-26 17:53:50.696525+00
er-20261126-4aa3cc69		deleting	{}	2026-11-26 17:53:53.596545+00
er-20261126-4aa3cc69		shred of	{"mac": "fce840a5a3017fea0e7a89a9a2d18b1465723ea6e3134970cf5839493eea4d9d", "kept": {}, "roots": ["file:8ed04890"], "tokens": {"DSR-1": 1, "DSR-2": 1}}	2026-11-26 17:53:53.632279+00
er-20261126-4aa3cc69		shred	{"mac": "ca6dba53ad934ff47479c14d77ecee767c7ce7ac91025c83f3c468bcc7d7a557", "keys": 2, "subjects": 2}	2026-11-26 17:53:53.673614+00
er-20261126-4aa3cc69	@PROJECT@/tables/customers	delete	{"mac": "48c6a575a8705505114d3d32106d96553ce3bc64d9859ec6a28001618551dabd", "rows": 2, "versions": [4]}	2026-11-26 17:53:58.565053+00
er-20261126-4aa3cc69		shred again of	{"mac": "fa33f533a189f0a87be2d26c7521488754d791e9bc4599e323e71276f1bc65f8", "kept": {}, "roots": ["file:8ed04890"], "tokens": {}}	2026-11-26 17:55:37.650468+00
er-20261126-4aa3cc69		shred again	{"mac": "ddbfc7b842e63bd36b8ecd158fcf3b2f510ec9a462477256165f368bf9ff1d47", "keys": 2, "subjects": 2}	2026-11-26 17:55:37.697222+00
er-20261126-4aa3cc69	pipeline customers	forgetting	{"mac": "ba1b1fc01a8294bab0ae21bbd8d3816b0a4cd255bc59a787c84c2b75118ef78d"}	2026-11-26 17:55:37.764127+00
er-20261126-4aa3cc69	pipeline customers	forget	{"mac": "f16561da30be1b10580c4ff99040a269a9d8485026190468959a898311c9d508", "counts": {"rows": 0, "dead letters": 0, "staging tables": 0}}	2026-11-26 17:55:59.666608+00
er-20261126-4aa3cc69	pipeline trail	forgetting	{"mac": "a424bdb0547a6187ae0d0f56c84742f0cd7a226908ab54a47ee4850e308e4e36"}	2026-11-26 17:55:59.723183+00
er-20261126-4aa3cc69	pipeline trail	forget	{"mac": "2581a31941eb5c80fa0078cda8e33ad926f96a8c374e2b001d8164f3424d8b35", "counts": {"values removed": 2, "sealed values removed": 2}}	2026-11-26 17:57:28.390095+00
er-20261126-4aa3cc69	pipeline customers	purging	{"mac": "bfc9a16b6c9a5fd2d3f2ee966cda671f0fe1873808476b8943f61d36cdf3fb6c", "done": {"tables vacuumed": 2, "tables written anew": 4}, "at_work": false, "interrupted": false}	2026-11-26 17:57:28.605723+00
er-20261126-4aa3cc69	pipeline customers	purge	{"mac": "6010db2cabb29819dc7be83c9f2cba2b46cb1b38757cfd993e1e281c16dd0047", "done": {"tables vacuumed": 2, "tables written anew": 4}, "out_of_reach": ["write-ahead log and its archive: until they are recycled", "base backups and dumps: until they are rotated", "standbys' own backups, logical subscribers and change streams of the target", "the server's log, where it logs statements or failing rows"]}	2026-11-26 17:57:28.613348+00
er-20261126-4aa3cc69	pipeline trail	purging	{"mac": "be4dbad168ccbca12e8aa7568ca8385a912c3c473a2c11157d4d1b9c7322826f", "done": {"files": 9, "folders": 0, "log entries": 10}, "at_work": false, "interrupted": false}	2026-11-26 17:57:57.335275+00
er-20261126-4aa3cc69	pipeline trail	purge	{"mac": "ee788d0b6927605b984ca0eea20782a6f00d4c339f77be51117794887de2f12c", "done": {"files": 9, "folders": 0, "log entries": 10}, "out_of_reach": []}	2026-11-26 17:57:57.347617+00
er-20261126-4aa3cc69	@PROJECT@/tables/customers	purging	{"mac": "bdb44a6434dbc51cc68cee8c11784f672b4f72e7f2fb1e7c5a64dfee4380bc3f", "done": {"files": 5, "folders": 0, "log entries": 6}, "at_work": false, "interrupted": false}	2026-11-26 18:00:37.285654+00
er-20261126-4aa3cc69	@PROJECT@/tables/customers	purge	{"mac": "ed78da1d10503f91e31274980bc3f6bf4ab0c0b8182eb910e7bb5973bb713765", "done": {"files": 5, "folders": 0, "log entries": 6}, "out_of_reach": []}	2026-11-26 18:00:37.295007+00
er-20261126-4aa3cc69	request DSR-1	scan	{"mac": "fbbf302aeb9b33323aad1870cde46478e805e4ef5179f68aecf6cd47ff8ea9dd", "finds": 0, "unseen": [], "checked": [{"what": "checkpoint of @PROJECT@/tables/customers", "bytes": 31167, "count": 2}, {"what": "checksum of @PROJECT@/tables/customers", "bytes": 8498, "count": 3}, {"what": "data of @PROJECT@/tables/customers", "bytes": 1552, "count": 1}, {"what": "log of @PROJECT@/tables/customers", "bytes": 1940, "count": 3}, {"what": "other of @PROJECT@/tables/customers", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/tables/customers", "bytes": 440, "count": 10}, {"what": "current rows of public.customers", "bytes": 29, "count": 1}, {"what": "dead letters of deltarelay.dead_letter", "bytes": 0, "count": 0}, {"what": "planner statistics of public.customers", "bytes": 0, "count": 9}, {"what": "pages of public.customers", "bytes": 32768, "count": 4}, {"what": "pages of deltarelay.dead_letter", "bytes": 49152, "count": 5}, {"what": "pages of pg_catalog.pg_statistic", "bytes": 262144, "count": 4}, {"what": "pages of pg_catalog.pg_statistic_ext_data", "bytes": 16384, "count": 4}, {"what": "checkpoint of @PROJECT@/trails/customers/payload", "bytes": 33534, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/payload", "bytes": 23555, "count": 5}, {"what": "data of @PROJECT@/trails/customers/payload", "bytes": 20708, "count": 4}, {"what": "log of @PROJECT@/trails/customers/payload", "bytes": 2580, "count": 5}, {"what": "other of @PROJECT@/trails/customers/payload", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/trails/customers/payload", "bytes": 808, "count": 17}, {"what": "checkpoint of @PROJECT@/trails/customers/events", "bytes": 29986, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/events", "bytes": 41727, "count": 11}, {"what": "data of @PROJECT@/trails/customers/events", "bytes": 20329, "count": 11}, {"what": "log of @PROJECT@/trails/customers/events", "bytes": 8732, "count": 11}, {"what": "side file of @PROJECT@/trails/customers/events", "bytes": 1164, "count": 35}, {"what": "checkpoint of @PROJECT@/trails/customers/ledger", "bytes": 29826, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/ledger", "bytes": 72182, "count": 16}, {"what": "data of @PROJECT@/trails/customers/ledger", "bytes": 58789, "count": 16}, {"what": "log of @PROJECT@/trails/customers/ledger", "bytes": 15070, "count": 16}, {"what": "side file of @PROJECT@/trails/customers/ledger", "bytes": 1880, "count": 50}]}	2026-11-26 18:00:38.96047+00
er-20261126-4aa3cc69	request DSR-2	scan	{"mac": "0aa5291f8aa48ccfaa69187754cd5ee8977473da9ea7b0c7f657a9a99c2bf42c", "finds": 0, "unseen": [], "checked": [{"what": "checkpoint of @PROJECT@/tables/customers", "bytes": 31167, "count": 2}, {"what": "checksum of @PROJECT@/tables/customers", "bytes": 8498, "count": 3}, {"what": "data of @PROJECT@/tables/customers", "bytes": 1552, "count": 1}, {"what": "log of @PROJECT@/tables/customers", "bytes": 1940, "count": 3}, {"what": "other of @PROJECT@/tables/customers", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/tables/customers", "bytes": 440, "count": 10}, {"what": "current rows of public.customers", "bytes": 29, "count": 1}, {"what": "dead letters of deltarelay.dead_letter", "bytes": 0, "count": 0}, {"what": "planner statistics of public.customers", "bytes": 0, "count": 9}, {"what": "pages of public.customers", "bytes": 32768, "count": 4}, {"what": "pages of deltarelay.dead_letter", "bytes": 49152, "count": 5}, {"what": "pages of pg_catalog.pg_statistic", "bytes": 262144, "count": 4}, {"what": "pages of pg_catalog.pg_statistic_ext_data", "bytes": 16384, "count": 4}, {"what": "checkpoint of @PROJECT@/trails/customers/payload", "bytes": 33534, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/payload", "bytes": 23555, "count": 5}, {"what": "data of @PROJECT@/trails/customers/payload", "bytes": 20708, "count": 4}, {"what": "log of @PROJECT@/trails/customers/payload", "bytes": 2580, "count": 5}, {"what": "other of @PROJECT@/trails/customers/payload", "bytes": 3, "count": 1}, {"what": "side file of @PROJECT@/trails/customers/payload", "bytes": 808, "count": 17}, {"what": "checkpoint of @PROJECT@/trails/customers/events", "bytes": 29986, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/events", "bytes": 41727, "count": 11}, {"what": "data of @PROJECT@/trails/customers/events", "bytes": 20329, "count": 11}, {"what": "log of @PROJECT@/trails/customers/events", "bytes": 8732, "count": 11}, {"what": "side file of @PROJECT@/trails/customers/events", "bytes": 1164, "count": 35}, {"what": "checkpoint of @PROJECT@/trails/customers/ledger", "bytes": 29826, "count": 2}, {"what": "checksum of @PROJECT@/trails/customers/ledger", "bytes": 72182, "count": 16}, {"what": "data of @PROJECT@/trails/customers/ledger", "bytes": 58789, "count": 16}, {"what": "log of @PROJECT@/trails/customers/ledger", "bytes": 15070, "count": 16}, {"what": "side file of @PROJECT@/trails/customers/ledger", "bytes": 1880, "count": 50}]}	2026-11-26 18:00:39.010058+00
\.


--
-- Data for Name: epoch; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.epoch (epoch, root, began_at, ended_at, root_gone_on, mac) FROM stdin;
1	file:8ed04890	2026-11-26 17:48:28.187162+00	\N	\N	\\x01c793c41fdfabe9c573f63f7abf78112b00000000000000002e7f16c8348317b47a9d3f3ae7756a01e595ef10e1a187c630a8f6d1c247dc70e7e848c1022f9450886cfaed9fb18db9
\.


--
-- Data for Name: identifier; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.identifier (lookup, token, epoch, mac) FROM stdin;
\\x5b96aadd4a34e0646ed065de494a23418fd9da6aa9af1b6349e10bb38cbabd49	\\x209706edd82d821d6733b818f415369b	1	\\x094fdb56c2409e365fd544f2674c5e0d6d060901fb1f1ded1e92decf0ecefbf7
\.


--
-- Data for Name: key; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.key (key_id, token, class, epoch, wrapped, commitment, created_at, shredded_at, shredded_by) FROM stdin;
\\xe44f585cab95e23769bd9fa565954d09	\\x209706edd82d821d6733b818f415369b	contact	1	\\x01b2f3a0d54af4351e92225843321e66160000000000000001d470717db4483b68f56f5ba621de05d75fd692d03c551b5290c141394027463d4645415050011a79a9d25740caaf1922	\\xf66d3d5293df980e850da7b354074d9f5bf095a2ea0d3a89b01ccc6d7346c635	2026-11-26 17:50:02.367958+00	\N	\N
\\x4fa9b26e98228f6f0569ffec49d63d1e	\\x0e81b00d6c72ed1ed8425db1fc2405a1	contact	1	\N	\\x62ed76cfd0bfb0df74d7cd4296975e0d95c2271bc87a8ac144181e5e57c363a5	2026-11-26 17:50:02.367701+00	2026-11-26 17:53:53.663516+00	er-20261126-4aa3cc69
\\x51e8ccdb6cf0ef29a18b20451bb9b692	\\xf29a1f90b7da72a1753d6721895906d0	contact	1	\N	\\x3310115d0bbdf34b670c37689dcd82c95baeace9dfcf19678edebd52d531e06a	2026-11-26 17:50:02.367972+00	2026-11-26 17:53:53.663609+00	er-20261126-4aa3cc69
\.


--
-- Data for Name: lookup_key; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.lookup_key (one, epoch, wrapped) FROM stdin;
t	1	\\x017a45653d0f7d882ff30010dbc5dec8b0000000000000000094837884aca1da1a2e4edb67b4fc2459724f97b480bdac377ae11f8dac119b397915b911851bd4e235450e6f6ed6f6e5
\.


--
-- Data for Name: reading; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.reading (id, at, role, reader, purpose, question, trail, keys, noted_at) FROM stdin;
\.


--
-- Data for Name: shard; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.shard (epoch, shard, wrapped) FROM stdin;
1	0	\\x01579f37b9326334714ae5966e380a6e9300000000000000005d8b62294e668a4484ff586aa5da99491583a0ea0cbc276cd1fe80c62cf1573ab92a71edd950b6968028f831d5a5cbb0
1	1	\\x01f8ad316b6064961b61dae904a12e183d000000000000000043426a7a4deab8e28a463278e1a080d913d584ea49a64aad1360a802aa126bad8b69c4786abfe4b53d672e94869c5aba
1	2	\\x0177518a9461c5a8d7b92a6ad21bd7c14300000000000000009bc4d12300a91e0116d8f9211f631d634e0002690d62de085d270f7b8e001252a77bc4c7740f16982d735cfe02c9e25d
1	3	\\x01e79bbd39d75ff07e5e497b8fdbf2f55b0000000000000000d3666eef0a5a3482536d77c36271b5ac5646b7a282ee7a051dd293640d691fd1095dd0b69b039302efa6d92c585dac8e
1	4	\\x01035f9467a93d546f1165e20402d41d330000000000000000ea9ee3a9daf6bbe5a49b376e7d0e2850429ea8fef4bf21f903ca0cbde955073c61933eaba14fc9097a7fa0427a286fcd
1	5	\\x01d8c01805f100500987d164cfa83d499e0000000000000000d7721fd4ecd59465472dfdb9f1507286c19d5492922ce0f8a85f7a5e65f9adc6b6d758045c12567be953688dfcc91029
1	6	\\x015cdeb62765b7015494bd008f5aadbc230000000000000000dabf5e174f035b3438385ba4d11fdc49de580480d409c3d2918d01c92216572cc42be0c47385de35480252a6f4bbd582
1	7	\\x0136748a6f386a61319261874c70b50fda000000000000000020fe9e80b662447cf4517d6badb9552fc897c2e64149a23eadc8ba548070b7c68a5b09b962663854cde440130948f422
1	8	\\x01a378cbdc1be37a41fd33c5f088d3f65c0000000000000000264c903a993940e0718ffcac66c4400be3fe7c13e85ffca3ba12a88294b0febc897e483f9f0685b1d639e79b60c6bc4d
1	9	\\x01965bf1c0778fe88271bb7686b2081f4d00000000000000004b98f2ccd9dc64c8477557ae97c879a0e395368fb8463cac0baba0a9db36d3c9103b34597eae7024738a73e304212450
1	10	\\x0182b0d22df5a2b9982f4ae7ace293e3cb0000000000000000a5735a0fd1ecff5e60ea5e4bd8e63e05ddeb8128e51f269338904048f33594a10331bc3329767c1a620fde35e742e9e3
1	11	\\x0139f3d2c4395c5928ff28df91e2542dae00000000000000007952991ef32ad3ade29a26ff0edd135938868619ef2798750ef589fa266dc000ac6fecdb0dcc4a66a60a6eb938172b40
1	12	\\x0140535bf10b98730149e6d86cc50f504f0000000000000000f4db207fb8057e83ff0af91daba29710cda805400d144448b38eeaadd02bb2f3dd764c0c44815801421ed8638a572183
1	13	\\x01b9fb60e01d02991680f4165d2ecc3e11000000000000000028dd1cfb24ca22c87e9968dbd0ff6dc2e2c92dadb133d82db57ba73693f37c57dcd4e9e55fec69e5cec812baa4d2e339
1	14	\\x014db051c22417a21ff2fcf7e51312b12c0000000000000000ea576e28e27aa086dfa6d3953ab63644bfe8d60bdc30e5de7ab0f5ca9d8c649f2827bd6b7ae423ef660c1982f81116cb
1	15	\\x012ea1a00a0885dc91146469a052d86aac000000000000000083815b8e575430e8d1e1b575f66d20ab61005543f6f205d4082f8350a9f9e161c7f13a862c78a9afae7f6ec34ce73025
1	16	\\x01f2c47ae33bffee9d2775afd49c02a9df000000000000000019da390a504c55347fe1095b8a9ca7277dfe9510b199f7ed772f02eba4ad1aecbdb5411dd4f85b0f7da76b7bc5a774b2
1	17	\\x014dfdf650d3d308b71520e75ce575821b0000000000000000e8e9c72c1b43f6e39c0e7d5219db48e99e876ff02b92f302d44ded52e3f1a877407a52a13656154e44382a6e7b8a5cf3
1	18	\\x0107fefc4fe42f271709881be26c0b5963000000000000000021ec84bd38457e9871d35b4e60b995452744ec3bba52f60b68a10b0388a4970a9b9a47ed50cf006e00885f9f2442c54a
1	19	\\x013d9975b8b09083a4121cf59bae98def4000000000000000017b025d0da7896cc27f4f1f21590a371586533cee91693ff6c25299a9379a8343ea7e30e4b336b5d59dfbcbf06b308c2
1	20	\\x01008473281bf4d063b0561a1c96767193000000000000000007a2e5d88a27559f42d9813cdbe1f85be4ee7945a6b2d5238c753100f2248bf8ef087c4ac8a647bb7885fdab0929041f
1	21	\\x017cd2dd3245796abb6248452bca64379200000000000000002408b1f07a7af9e825b9fad6ecb96de3385ffd57dbbeb02196f95b7a5bd72ebcbe8138c78f2b5f61d667ff47a455b203
1	22	\\x013b27d1e0ebb530c0f340554ba7f9a32900000000000000005d732fa18bd1409f14450fb8cfe063b49149942ad6a41507e72b3f8f41b50633b8254854b1a9d278b36e10e09d358826
1	23	\\x01298d609007029a0ac97870689553dd140000000000000000c903a2571594f8cdff52e713b939712d2003dbe4fb600960530e0224f6f024e009d64fae3866e4592c9e98999e39d4ae
1	24	\\x01f3aa1b54e9caa550dda1a8040f5cef1000000000000000004da182f2a67386f9d757190327efc95a4ece382be35f07a25130f6c4cab7340e66766ffa183c4df7b4fea5cdcebd1102
1	25	\\x01606783bb2a90bcf56bc00ac573b4494e00000000000000000c6b8b339e995edbec0146bfb461764ec02c53cd86431a90784a014884ba39f49ec7944a492b3a464aa9a9bbcc3bb58e
1	26	\\x01ee7d9ee1f0e10ab433610d63e54c5da900000000000000009557e3ddd941edd6019adc6a566a7e5e1624cc6ccb9f73456f1e61ada435006bfb8002e299b8a5dc9490e286c2460f45
1	27	\\x011dab4c8255ba2ff2df39e30ca4e5bb3d00000000000000009ac757bc9dc953287ab7f1af79f2ae85358dd24b3e60e7db3513744d5b29b8acf769df4dd1d0ea9f58147129501b4fd0
1	28	\\x014a8736186461ca0fcd350d0f23c83af700000000000000004e2d5174a14a95a5181917ade7d599105b2f52b578481bcc63df87debf292819566169e46db3fa596038393937601619
1	29	\\x016e7cacc6653d6888513c88cbc1dc8539000000000000000048d9661c1bf2077a6bed9c45d07641fa55a96fd3f149e510dfb10d54a4aaaac7bdf22bd2096001dc59845f304e0165dd
1	30	\\x01e5d597770c4b9319be0aab73f4fa8f38000000000000000026dd990354cee4490a684472b6feceaff2a4e1ccf7a1e9f30e25178330da30bac57e30e60c64e8a90d5bc0bcb5f01b3b
1	31	\\x0196b55bf83c26c7f83335bba94123c80a00000000000000007f1cf982820442119c5cf88224c0b7123769fb865cb7d3131cbc96b8c93872da795c24fca3ed8e5ed033e061f6659739
1	32	\\x01a5be8b4df888ec19773855e87a4bbd3100000000000000000beea03f9e9023d28ec118509516b82a7800989ca8e8aa51923b95968c2b9a102959cc9668ef79416c55ce910929ee72
1	33	\\x01bdb25f0e9e5dafec30546cfe4ef21e3d0000000000000000e42a769adebbdd294e13a4f6a48b9c6fcb2e79319237b6ab1a045199a2977f2189297cbbaa13fd6f67024d2994cbda62
1	34	\\x01245987e575bf3d77dac39a84797b6a870000000000000000534586d48a035cff78b240de1cb2ae56add1761c98fdff4c421863666ef27aa78170c540800355dff5d5dd4dc9f901cb
1	35	\\x012d7911817e1ea186925f5989eede45ce000000000000000051ca77d539cc85f0219a6c4b919633303f17ed0a144b66fc36e3901e8a31776798dae517d07d9c9b9cbdda9c360dd327
1	36	\\x01e0e7d22c5c7ae51fe18946df37f147b30000000000000000980f1f51033f8c0e63ae7c061beca8a90f04e0f4cea6a7946a7b96088201afd73c1680afa0bb7c44f3d8cfc9b3c5b46e
1	37	\\x0120784b4da14e0c3c63a68b4ded8cee0a00000000000000003298e77f910c6fd831cdcd97c8c330f8eaf2371a32461dcc72312a64b15c3da26d849eb98429b8166effd172c30d8717
1	38	\\x0142c9b779432e42dfe083d94112ee4247000000000000000007f4a94836a089a18389d4c198689a9e45d5359cd72ffc88f3a4442fcdb660d2e6563a7189958555360f265ad8016f67
1	39	\\x01e695282f0637e330f799317aff236a7d0000000000000000323036661789a9f36a8e18f7bb1eecaff9ff940468975ea5b17e4a9f0e6abc1b9c6c25f5db1ced420ea54cd4e3f672dd
1	40	\\x01f8e897a61a7cd4a6512e461dd9ba59dd00000000000000006ad694ccd918275f1f54ad4d6e93c6cd0cca33f1eaa13c4da9c9ef95f7431c0b9a9b318f033a4a7d4d24b8db4e60690b
1	41	\\x0103ad78a872e87f0f7b91379efd54644d00000000000000003a2c6a0778c9c992615bde8fb4ea77a72cc41db913996d65a59eadc4020b732946e37182ae68a97ca360b49d094cc891
1	42	\\x01bca69f17bc83fa31dbd025b26502b3df0000000000000000f6c7660991008a963796e09bc2c08b53531b4f9717135e81fcd18adb7e0b990c13f428d87c736cf19cdbbb4e034ffbbd
1	43	\\x01c41def9bc332a859342a75bf47fd8c3900000000000000006ac984de2847decd505251cb87fc5d49638aea15ed3c0e98f408dc1c9f52a596ec55120fe68655ac08c41ef9efb2bf42
1	44	\\x018e1fc4981eac0fbe90d926fbef8a87380000000000000000ed4dcdea7750ce8daf48a30bd065174acf08b0afc99843f95a2f06c0704c015893a22e202536c19c0dacfd19d0f540d6
1	45	\\x01c26149efda25def158134f60c33ea15a00000000000000006c798ec6768dc2df07d047418434de0515dc362228c9b3d85f737f7d44bd978943162ca6c5ab23666f4ad29581bb9edb
1	46	\\x011bcc8a7b44cf889c0191a8cac6319fa70000000000000000344f679d1e715faf1689f4705c62c5b2128010d9b89a917be009c65535abea353c9f12b6a8f4afa3cd99435a6739af7b
1	47	\\x013a311c291796c5ae0a06b59a62cca5ae0000000000000000d990d15c4b8d9b4ee2a7131121cb1a219adbf7961f17fe5e65bc336254961f822446e09b469f8a6600d5cf9918d05b5f
1	48	\\x01ecd71ecd835ceccdb334debae91dc9d300000000000000008a3e4f0050b5f974957a5f1df399a333633772f76644d095bf9613ce699c7dc731cc512b5eb6057ea5f898422f4f2483
1	49	\\x0120aed34a7a2ad7283e52de198135dc3a0000000000000000bae7e69c721241996d4d1c7bffddc5179cc19f6776ddde168e0d0e96650ea2d9a592d82bc2ca20eb501464c219f31b80
1	50	\\x018679b095d05ddbd59e268f87950e2e73000000000000000023f1640f93ebe022819ca11dbdecfd5fca78fc0cfe974ef5b9c53f5d7bcea711a804f0abef6497600aee6999c5f0f356
1	51	\\x01eb66966e44603de606f9c582f64c4c600000000000000000d282d52be28d83f89ce0c1b8b81e09d8efcbc5540c703edfa65076e74e7f272c95319c8e0deaeba83b54e52828df59df
1	52	\\x0137971f5e60702e40d1bc6e25729c0f6d0000000000000000d78c2f6455380d662412b31711c7cb85a9b626089aadac7e3a2ed1a779784fbb87fddb73f9d3eb6cd462d7c2c3ca220d
1	53	\\x0134d1a3c2da8d52e8eac721914858d328000000000000000021292c6508fe80e07898558017445b07c2dc334f0a86e280f6f28a6ed7d8feccedbec515f0086088c2e7a7f008a0004e
1	54	\\x01e130eab1e2fdaae826bf33b6e8905da700000000000000002ab08976e07edca67c3ec2aabb76aaf7dbd59f19bfdab88d366e823cc91bb8e15b1a11af749a81b693f5b7ce0b021bcd
1	55	\\x0135cd0425e67615d16b637ad9d8d652850000000000000000fe679dacbe12ac8401e2860252c3fd88f22fbb608d24bb4fc51bd58de452c17c51369e923456628960673d8cfcc3b96d
1	56	\\x01fb3d44b99e140930e8ebe146b6f511cc00000000000000000ab4a5e420fd2e70c829de7b9cd86c8109ba4f5bf6024d84444dd43c4169b382f4e6de0f02d95ec7a04e1d79d4ef12ad
1	57	\\x01bed89a54d577186bb633747305e6876d000000000000000006ea10cdd3744670eea407e13f5afacb09493514c70daa6f93cc6cdec34950ca8643f7897e24d428dc3e5fae5837fe20
1	58	\\x01df788973c5c86d9bfdd02d9a7aacd05b0000000000000000601f123fc8c068ae0a5f304c7398a61ed7e74307afdb486a5ccba712fbba4452a85662ef40b286a42ea5be0be99032a1
1	59	\\x019c00e3dd05d8c791ff81991d3cd6b6e60000000000000000270e2c91bec3f56fa1df499036c3a7b762d184f6e2e41b71c5000bbbfa0e231e075479eac597df6120a9254d3b6d2b8c
1	60	\\x01ba907c5c22e0f84b8673502f7bbb8a66000000000000000021612657c7456f5f7337b7353a72466b23d444cf4b7a8067669b0102209bed092f599cb61f529b168a01fc71bd9e1127
1	61	\\x01bfc024654418d5a01618f80020d10c350000000000000000e3b59da6283432f2f74291b019272d87cb8ccac75cb531838575e816e8c7cb401b570142bfface21c339ffeb9fb449c9
1	62	\\x01f97de6cdbe1ae554eb3c74aacd1945980000000000000000ec37f9feda7f9d52b685fe69711d0b464b763b1c5aca1f82c0d8d4faebd65a4e08c59ff44745d60fb5fd23f2dae1de6e
1	63	\\x01f4a467ccd2acc6018503cdfb227e96ee00000000000000002485189fe85dc579de9727d04c02020e6ad31d5a6e2d2f69fb507f34a3c88332cced9b26010d9931db05f9c90e111ab7
1	64	\\x01eda7bf2bd00b9d4ded0efa9dc6957a9c0000000000000000ea8d66e68ed0cecb4deb38ac87eb6a44eef39e2eab8acfcd36800471a9ddacb2148b88caa63c8084ebd0de8a8c5fc8c4
1	65	\\x0118198b5bd89191e3f004a2097ccd1b95000000000000000098887926c87bfa321f5c3098e40ad24a2b8fc246da374981cb38eb7fec29868af79f4852f0f9a21c53f890fbb71d08ca
1	66	\\x01fb2ac67a79c7da6d6305117445bc8f080000000000000000b11b5cfe9599426c02eaa269f587478bd1e1fafb4db2cd9e86fa2a88f16fa05c3f59dcf3eb7c393c5b30cba2bb3b61dd
1	67	\\x01cc7f77471fc445e724979eb27e14712500000000000000004d4a3d0be03b74b5cdb2085c15f5b48bfa7b4fdd6f30f36f225ba2fe92ec4f8788c5c47b5dc13db0205125a461e8a329
1	68	\\x016d83e60abaa4bbfd8cb6c8252e2686590000000000000000bc3027b4be7553a1a3485e7c3c72c05f2c5c15f0c2bc6473d7f5a0722ba5b5e7f9b99af8e298852b07f6c3cd6b86fbf6
1	69	\\x01e9b4e2ae879952c1e7d69e6ffabce27d0000000000000000d28a5263c84b4a2acdbd943abcd9a70022f9f3a436de6f68d4574693a536c59d5f26d05d9858f09084815a0ba06d23e5
1	70	\\x01ae2597e15d9f00abf1c1f23ad91487770000000000000000f03077d8d566124e043ff19cc34b06c26a7d5f86c0d000a2a4bd6d56a6ec28aedb7dc162437fe23cc5bbdfd2d3dc7e78
1	71	\\x01c92ec8248380150207c72178e287b80f0000000000000000bc3b2f6c32a48be2a077f3b539a7278d7e13a39a08859b45b6c06c10dc364c96cdb7b245c7e65462d30bdb2c6dda8746
1	72	\\x015c9b4e13da1845c32fb8005c7bc18fe7000000000000000094d02aec6424eabe04501578afa443488fade2d10169c0898e7ba7d350e4747bf39aac0ac5566a85cf2eae79212e3f3e
1	73	\\x017196ccce8969f9b2379622779a1f519e0000000000000000bd2b38486ac72e3da913735798437d8c12d577c1e3f8123a7add4530a5a3b26be412fe79c26115f89cbc8cabf049e50b
1	74	\\x015e14416048f953e63dc1e7bd9243dd3f0000000000000000c0f47c6ff63c7fedf3b2e5e20aa8e81833e36542ce3703128fd452bb9ed461c023327e28a3ec304195d71e9c071d0570
1	75	\\x012714ccc2cedded20c83880bb62a1d984000000000000000004f549d5bbf67b17ec7686dbcf4e707e936b12177095259c9a07cd6906caa97fb3c88996ce659754070be51c5d4d0f48
1	76	\\x017470ba866d9d88eb0b4280219b377a2d00000000000000002fa2420e14ce4754a13023fde6f0184a729793d5b9a9a2446cded905e7f1c981c0e19857fc32ec674c4f5245f801a22c
1	77	\\x01f28288c05e5f4cdb97a718f99ab8fb1f0000000000000000c56ecaafc84177b93e18ff48abbeb7d31ce27974f3c4ee2a8bd0da6a800c7f80f4fdf46c2697ba01bafdfada960ee49b
1	78	\\x011b7fa474b1de9d00078630883a574c3200000000000000007d099d6181fe441851776bc81305d9a1deb56b59e49ddf1ddc830554adf865843bde173edc0efb7b4071f00605230976
1	79	\\x01a92418c087a7174d79f986926d8d8a03000000000000000063ddf34491b0f86765c42234f7afbdef349ecde593df27ecd3ef9b26ab6a85a93d505424dd56a4078826ce72050f6163
1	80	\\x01af623038e67522e01e57302b2c3d959a0000000000000000f6080ced7b04696aca62a86c4a903110755a6477a1803d225c7dcd355a259b644303493cddb3538be763917dd13a79d7
1	81	\\x0187b9e8cf00830207b6274d5583d8936b00000000000000006385d67f4df6d605ebce458ccc0b1ae035046821448eba3896a30155680d3844a84f116fd0690d91a654928097397503
1	82	\\x0164b34a2dca20b974f2c0baea8d3bbc610000000000000000ffa730b1b8d63d97a6283d124b6da106dfa90b61ca6c1127af892ab0ee233fc7b19328e6e4fcac997a1ecb89a8a674cc
1	83	\\x0103f5eee015a8a2de4566e3b6a1dd0349000000000000000097d995cfaf967b76f129941cad02f8510f12b0db5cbf087e213a722a347d48614c5c9a2d20ed5f517c59b5d9f3ab8250
1	84	\\x01dd874985cf4215620ab71359a8ca380a000000000000000013a8c1085f7a83f6e00866b6bb040c7a949b0c072d37b70fd866917663dee87837e39e82aa01536e74af71763c857cc3
1	85	\\x01c92bf6a1fe0980ddd20975d192de032500000000000000000c58ec625dd9b1c6afebda9cf46aad7d1cf124cb5e500282e5db22f560649af411a92d572b14444ac135f803188e75da
1	86	\\x01af50d0b9493a65fbfe1ab46dea25249a0000000000000000376ce1fdd2d64f102999756af28d0b9327d58e1fd38d2f14d9d48ade37ed060a75b667bfb2a0673732f7ff03dffb4a7c
1	87	\\x01a74f63305dd3ab15773d63edbc37d80d0000000000000000a0c01f3c062d2a3c4e1f8a2e5877483dde326001a243ce80f99d32a956878fb0ae4496d342d336f02f78b2a6791b29b6
1	88	\\x01abba11e53380b8aace5f8102eaa68389000000000000000091f8cd5a92e218b203cd8cab7d1e0e558af9f1d2ff42959ad6c33338f76a9afc0565e89775f61bdec956dbb7a7807f19
1	89	\\x01d6962f2f7e6b47211c23fff66fe01ed90000000000000000b5679315fd1edb99ef0985e192def43cf978e5fe6dd0e12114478059d43c99c33261ff02b1ef079eb004f6360fc5c03f
1	90	\\x017b7d910a286a49859f14c6b950fee707000000000000000063a8e7fe296e6e4b67d0b5b2e5c0fbdbc01c46c6b622c76400d6f46b82498903f8911f52f104a0bbf876013aa21264da
1	91	\\x018d5ef8a05c266283939ab39b081c011d000000000000000017cc785afaa2f5dc81dad69b3ad3650d4c1d4ab94ddfae80235ce72d6bf3fec186d0fce1a0a2e10cb35cf26ef995c4ed
1	92	\\x01a142a86940c1650e83d66bd0f836f0f7000000000000000034ef4520c73912b7766dec62fa7902e98c2960ee41498ce03c244ea6ece0625e762ea1791f3c2b731a61f9f58856f68f
1	93	\\x017abd699d8765ab337d4daea427192fca0000000000000000cea0e2da0c7a109f21181e5d2532638cf69663c6a8a8f0ce6e394edadb2c97944b2dae5747ea8161b4c5d16a866ce088
1	94	\\x01a53a9a8bbbc00936b13f13ccc73ae7c700000000000000009ad45f55b71efcf37a0337190522ff73718622de7282619528dd7d5389d3611808b7c40efb12606c8f6f01bce1293d0d
1	95	\\x017a0a12665e0a317cf171d03afa9597940000000000000000d4094c9023516391e45b48c5d6b9898a61dd38a4778521caf3c97c52fb71a06a290be97e8ab28d0e517d8125cfb0ae8a
1	96	\\x01fe1fe4493bf7dd25e2941e0972575b59000000000000000013f0d286b4c00461485d1b28f3b25acb9efc356a34427ba3638161d07223a61ad8a2b13c9e22f23085e2e5fe33b2dbc7
1	97	\\x0109cce7622c0ea3eac71ac83eace0ca17000000000000000001a477d5a67fde2192638df2bb7d97fa4496e4020ca8667c71cfab528dd70323095b90d14b59c4617093b0dc64ae7c67
1	98	\\x013cbe17a25d0b25cf29af5511517b1bdd000000000000000075b64fec26b1ffa3f34f0ab42fa515f278a56e077c50e9cd46b8558959bedade7e0feb34c02db8062008167c5d1d1832
1	99	\\x01ad543dd2e5653e4fcd10e081c81ef7850000000000000000a810e4d3e79de6b1d36c2d6ac0a9d8845c03942cd6dc44fb99516b7c5b74251fafec081c470264648fcde8cc5fd0af0f
1	100	\\x012eff7c658cf14afefabb4a8c75073ddf0000000000000000ea043db05a940c39f51f8a547ab572072295458c389dc529d240b5731d498e7015faf26f1ea406d6d5e5207253212403
1	101	\\x0195275656202ffd833301957481b24e94000000000000000068511809d5350518e95722374d1179ae2f2794ce3da01d42f9294fe54f2c0eacbe27aec7e9db67047d9bcaedd2f887b7
1	102	\\x010bd926b1176a3eff65d423aac42fc09a00000000000000003cbeb18ae18e157e63b3e3cacb32bf7dcfbd0b0c8f660d5b3bcdc38ef51b3c6cb120916edb94b16d162a06a1f2d00923
1	103	\\x0141ce19fea11a328e0e0f73cd1176c7d1000000000000000085ae3eb677e9cb7c5f24915a1898af6b7b42db513e3edbafc6d47759a54f532e07a0058505eaffe4bfca8ab830ab8f9b
1	104	\\x019321925b9c48300a1d6f4ca5fd62542400000000000000000b8ff010c52732feae2b6a84a47edfe46036c0dce3f0534aa7a24c05ab881956a2d59c9a25e47f88c2fc66dff848bc2f
1	105	\\x01a10aea3070736108de2b1361638b618b000000000000000095626487595e10a20189cec347a37f085ccd1da87b9180dd1b4ba5de577dda2174549786041bc906d867dc0da1e752a4
1	106	\\x013acf831f26a8556c7d1f7985aaf4bd460000000000000000ef706a3ddabace037701db019a5dc04acff0190d60aeb9bafe97312084f03209193563f0502c645e9443fed497b91d21
1	107	\\x018712302aa3da0653382ba6c46f1d2b7a00000000000000008b5fe9c0152de0ac9d71a00c6b358462ca067cfa18f62ba5aefc71acd7c90acb498063145892c570160a4c228322645e
1	108	\\x01dc92de043b3e1689793ded5de0ca22fb000000000000000075abc1ddd1cafcfed774f898c7b5c6ab70b22c0913279e99e9807bf5905c87e237a82f2de2b1d3b84e340c6d2437750b
1	109	\\x01062e177f3c153f272d634a971ef3c3be0000000000000000ff397fe58ad470388a863458574e98610246e0e8082f16d00ff5a91e2db59e7da0b5d8bc4836c9fc76b6d9de421fa84f
1	110	\\x01a96d4df3d19c8b7722ee0be248c46a1c0000000000000000005040ddc76821a6707a4aed796a5ad796bfd45ca3bef28b4da5cf7561f4c60f266960f5a64b473612c85da3d003f603
1	111	\\x0193adbfa9afe12844ee00ab6703aaa013000000000000000099e8c9e05c3641a7c707e4381789c57bf36ec124e89122071719d9475383af538852b4f0e773e92c0a6db7e948907cc7
1	112	\\x01441b567d13e155ef6db2bc647f8023150000000000000000afc6cb11ce6ac5aa2b0346649ec5b0037ddfd0c631637ffbbd7ec40310bfcdeddd2145b8fc42450884754a07c6740933
1	113	\\x012c4faa6dc0bda6a03488042c482f237000000000000000006266dc6275ba3822720e887f0fda4ef66599bc19056b0692cdba76a2d7b5e15a02db843e262af02c918ed8f4532265cd
1	114	\\x017094a83b87f244d462322f2290ac968800000000000000007ebb7c68aa7fb59d4aad8a15b9823a5f943a7b565ffa809eff1f1a7d2dad49abaa4d19fb896038fb8bd58b66d5454e13
1	115	\\x01d2b948a40fa422d55c6c2b91ffb8f01600000000000000007c41584166a82df6afc87b8396cecbeae2b21b6335934e2f559f39353be7c85982e02d4783d0d0fae4f02a2de3620edd
1	116	\\x01f62927fadb85441120e93b89458ec44e0000000000000000045a45a9bd56232256026dfe4c7517990569e25b8d53a69f6c9f8734935d8fd38c51ef9cb16f29c54c3d42ba0abe0dd1
1	117	\\x010b57951a3e792d4519362317c0fd309a0000000000000000cca243f36fb9af00be5f959efea7dcb5fb13354ce9fb3f6c71f98eb71edf559d4acf12a212dc5e79769070269f1cf5d8
1	118	\\x01f9e0c128f1f4cd222573dcf8e6204f16000000000000000061ca27e6ca666889ccec7c327198bcf8c24eb4aaa9812b453c68c3900569102f264cec34d5981bff799af69032eb724a
1	119	\\x019f4bb03ebd1f3c2f5b3bb34b89fd82bd000000000000000088d0abb77657c5560844d66bc06d017a9acf2691d5f38cd909cee5b5477e3e40e547e5180917affad06ef2e38edec6ed
1	120	\\x015ab87aa8fbcfbe655cf6bd4347b330d100000000000000008d9f5e44fa01690af962e6cfe629ebc5d8f4e3aeb765429876cb0778e287297636e04a37ec5234f03fe80b908493ba25
1	121	\\x01facf80bbd53c90bdf221bee07369beab00000000000000003d1c443648689b2b44f190f8bcdf9488ccbfe14a9b482e0b5eb52cd1ffb7b458f8d31329663385edf2997fffb0bfbc59
1	122	\\x015f2d16aeac5026e3a8725ac1fd4e6a6000000000000000004427b18383b878d823fa88eec6f0b8a1bab88c97c19565a64bb2d4ce7b9a7c2372d3c8398e893e3d21a58247b4dac544
1	123	\\x01861d411c3ada858cbc14b782a25047b40000000000000000bdfe11d09c3fda8e88f4e294694e55bebc7218283a2301670eadcaea8358e4575c00451f95ba89607c55ddb18c4d84d3
1	124	\\x0126962f6815c077903787597bcfb17136000000000000000099e6693be19cd4e2b9b66fa9ba9bb784266f7c4a5465ef32c3feb4e07d2ed81ced7a9cf76892f505db239c3307b79e34
1	125	\\x01f3c095345da9ae40e3bf9280b7a8dab3000000000000000075b67b61700a802ab300c4fed8cd9fdcfee8745a26b169680afa0ac1fe77bcbe6c217c0b1f72e95bbbd9493cdebbb8bf
1	126	\\x01cd3223c9404325fdd80f036e2a690b2a0000000000000000dc17ba744ee756fac858355dfd56b0b3d5fcf234da9834460710efda2b3e2b70de198bcd4ab700d7e90647dc4ae1495e
1	127	\\x01edb7999f8327ce6c1209330e22548d5f0000000000000000d3ce0a77a6a2358889391f76647e869f313e1dbcd7aba2111eaff5677876aac98b52fb7dc6e7579d3dbcafe83bc49299
1	128	\\x01c26ffd52d857be36a63d49525e096cb20000000000000000022cf295f187f94170995f8a49bcfac49c4c8736dc013388bb9d59cc7bf5b365d792d879803c6cd1881522e9d3d9196a
1	129	\\x014f7da92c9eec5e99f2c23d38cb76a31d00000000000000006659ef52292415822af133a9fedc777ab5acd20f36319aed5e83ddd6396f3e0ce25b32e64b0695b4515abeaebb721347
1	130	\\x01eb43a8e4694725cd446243d1243377e100000000000000005f78c333d70dc327cb1b1b8b3cd13e2e8e3476b90e5b65d892745f41d521388793bdf4bc1233a2da4ef892404ff6d381
1	131	\\x01b5529dde5c608ac09aa3a1f7d81114fe0000000000000000cb6344b3b5f6164c6ad8af240b3b2880b1fce1d652d51704757a71057b4b4df0ce2415a0c4be68a971c617da8cb85b2e
1	132	\\x01357b8ee5b08ca736707061cce8341e060000000000000000139dd31ec42416456e2e38724b443e1f80ca94892f86e1e381fd4e35e5d8ce7570a560782cbedd7f7e613676315c46f6
1	133	\\x01218eecbd374e9f084008da6c9c20f6250000000000000000824427c1b505fd32f5186e237b5bd4a382d5de8f7e49037da8e397339cd82e91cf04c78058751419aac81a0a14711aaf
1	134	\\x01850a628cc73b8ef14f2d4322f6f93cc5000000000000000088f4f73b397ae74cd21c87524f6dd749adc58d696908a7ea9f48bb1ef8445d1278c0298adb8d723b8fc24c114cd64a52
1	135	\\x016df7dc945dcecefc58c41e4e0545011f0000000000000000e105df85fd2549572a06f3f04321b2cc22c09df4de82330a4ebd4ce6f7a66ee44939ac513668637f805f8a6e993feb2f
1	136	\\x0189fcb97444dbfcceece70672db9894ac0000000000000000cec5ab4fc41b30d1e82b75b00efb92367c55334856138353e116e3aaf19c8cac9edaa7dc48a545f4cb7831f3e6d83308
1	137	\\x0150786239c3f7eb3eca342af9cd1b30c90000000000000000e759bc65ed8cefaaadd181dc9efaf1db933519bf5cacc7fe2d7a6ae5d3403db507873a1664cd5a1d73c96a7b6c51e63f
1	138	\\x011021aa20c12f00db4533cf019294d5eb0000000000000000970941bb97ddd6d7e85ed3d56c65c650792443b08a080d7ea8a0eb3a1fa3fa72139928a429225b8e81073e44480b8617
1	139	\\x013e33883ab18ecf0cacf82348cb1a62480000000000000000accd3c16eaa2e4ddaecb70cd3d47086f1f8c830d63b0f235639b8e7734565072f9f1587d95273f44026befb7f18f5ac1
1	140	\\x01dbd5db4604d4427279a378b75b390f280000000000000000db0c9c72816be820b96d53c631ba3ce12f1a47ac070aec4472a3f9a998b4ca0c97b50cb93be13fa296a7991559d37b15
1	141	\\x017f9b2d85c235bd01f51228bdbf2a1f1f00000000000000000ab996b5cbb618871c4111e9de8fe481ab3c25d91985f5d7023d16761d9d28a17ad73aab8a4b171079353c21e650c656
1	142	\\x014117413b5c1b16b5de500ad0d4bb6c1e000000000000000015a6983a3c2e48626beb97293e2973537cade9139befb391cb274c10e69ceb4c1859d6ba2281b69e0d2e7d9f6188e2d8
1	143	\\x01fda288636d49e4e8f8966c6580c98d7c00000000000000009ba2501451ce9407f0d4ce3c0cc1b906a10b7a95a5e5f421efeb153de287d10752407e4b25b750a5303aaba14ca6dc47
1	144	\\x01dd5b844a35171e17cfdf0d8d33b0705c0000000000000000a6ba453468a6db7488595ab16467323957011bedf8bae3eb1b9071f0b924f5bf3f511b5b853ad4bdd48f589444e2aa02
1	145	\\x018a844e1daad0b3d460bb0bb854abf4690000000000000000778c6963152ee0b615b142fe8e3a79c41c45816b6f63cb961c5815f57b0e62c0c4f66e432fff2c57279c8701035d9722
1	146	\\x011acdab06bd7a2df5e8024a5f5e42dead0000000000000000612054013d466e32895981bf65d4bb52b380c41e46998160211d0270b5935082c9d39d4d02f0c6134900906fa3da20e8
1	147	\\x01117af27f8b78290a967f06ed97d146d200000000000000004cad90f1004cc1bf64ed277093f1827df2f85760a00f8829ea2f0c04001c0c3e1b3f11c3db4c80d4357f87a0c62dcffe
1	148	\\x0163eee0a1b6cbb9c8900f550f9356cd6000000000000000009939063565be933ee932baa2f0b0f3d0d52875f472a7e0476e85a58bb33ce9ff2c2e024f5f5783323cba0e069ae4d6a3
1	149	\\x01aba928e9508e3791b01ff573afc904ad00000000000000006f82fa3f23fdef73377220fa0f5685917d4e0092f2979e733df2357963469eae18f09212b57096406b8f5373624229eb
1	150	\\x01f4579fd69de35aa9a6cad5e425b095450000000000000000fb8e64343424fc77ba68971546111842ff031ecc7b32368fd808d13770867e8637001c48d316c8760d9e89a6fc59aa13
1	151	\\x01880608f111a7ec63187022541998c0e800000000000000001cf705a98e7baa8f0ddf8ee79e3b14d7e64c2e6510a08a8856ec495986654db72e78b1499928bb9d42bc739492eb30ad
1	152	\\x01520a83912b0f8d9c12a4ad69710a7c550000000000000000f4ae8a24a195d99266ad48462d1e202f3102995ebb4d00c4bb7378fdfdcba67e1b4eb6b98727d3b59c54ca924cb7d54a
1	153	\\x01da050b325b329d887ba5835bb5237b40000000000000000068f4ba337a380366eb91cc7fa7fb8d7cffe69ec73d3401ff1ddc994abc11a73b1f3804ca4bb2fa75dfe3191db708489a
1	154	\\x0163c56a42afa84705ef4299ef93ffa215000000000000000085c20530359ad0b4b397c67de44c8b68c03af371e80146631ea79231dab579706ad5db13479719900154db4f8cfe63f2
1	155	\\x01660d6101f4a450adadd4b8d963204b540000000000000000c9f29423da1e7ed0265514d2b921c7034fb50fd01078407a5f31f43c0776e29c42c64ffbd696197eed65852dbed5dda1
1	156	\\x0194204682119db8e50ed74eba5be08c3500000000000000000401d6c97d7d522b4802f3b787faaaddb91654f8ad95d89f534cdc7c9143a0ea300f583230592eabb6269de838482904
1	157	\\x01266d08a13ddf5dcd521db4ba1785e59f00000000000000008c2e79f57d284cbba9d865dc34d216e8d1c30701969c531f95c48a3e44502334fc6a35ed5097c68e95a26464749de101
1	158	\\x01f821de63e8b7c6c52aa6ca2b76705dd00000000000000000bbcde1c2bbe472b5b9881e022e7e19987ab8c5277c44f434088856eb045060ca3b1534269346c0d45a9cb2e8851dfb0a
1	159	\\x01f326cb8a0a9c1c01e563966e187f10c90000000000000000aa6ba065ab732c925c80aff935ecfe797c318b6e55eb7e98f2a7c183d3df86566b87cc9c3d91789cf744db723993790f
1	160	\\x017a3dc37d90940d8259d78d4f9d61794f000000000000000025b1d39159b525e666d2563eea77142045b9b3e03696883d0220bb23b5d6cd6b5085efddd7097a5b080f7452d960fea3
1	161	\\x01c1eef8e017d2950f2129681ae6f6af6a0000000000000000f3c341db5e0285a05c3f60941aae5667613801de19dd63fd12ef9465951031e8040cae2e01a41b7b185943b58a3cd1f6
1	162	\\x0140dbc436689fea32830753a7689311900000000000000000c4a35f3b0782f9abc761908ebfc4a680f8f80a183f664753caad5d09c208ccea4c7d46ca6e6f0d804c7ca3c80e7cc4d8
1	163	\\x017ac3fb4b0aea0efeb46d75eaea02a3d40000000000000000fcc5c8b33ff498d716e13de786c34a67ae49b27da96b0fdb7bddc388c8fab6e6230e7e40a419cda92605f3a1354a89d6
1	164	\\x0115925d80229b954c35da851e0739755800000000000000009a8747bf58578ce10332b2e6720b71e20a9db7e9fb41383c85919c9d5101852a38b6b2801900311b3172cb9441d21603
1	165	\\x012275e6355d50333a7af44fcce61bbc5200000000000000009bceb32578951ae4fe51caba9be63ca7bfd5fb1e53f2f7235ca74114faea4e200a339c94fd9113a98cb44626ac268f4e
1	166	\\x0100b01d500073aa651469dbce9955f2fb00000000000000004fa9eea3b7f94cee1e20409e2c1dcf6893b5ffa3ee23c25d45c8c1b52235f76de26ad243c6b2a4f09aec8252d10c8a04
1	167	\\x017bc39e2494b9f508be3090e67992de6a000000000000000051fe869ac4953466b66aaf8684a54430b93310df28cc9453f1e24203ad72d93a6c59f4948f62eadc79fe3f04d557405e
1	168	\\x01d3b2f7163462205a490cb3de05a9f1fd0000000000000000488d0bb7179092649f4e1a6380bc1c012df6b2bb1c1bc70b49ea9c37b667faab3f352fd2312970cd4637553cfa6f3331
1	169	\\x0182ae4ab33d531af0e3c779571adba0400000000000000000e29d9f2abccdacb252ce83ff73b9c935811917323d786725b2d00c48689ec76306347dd2283b005ecb7103fc8828ac9d
1	170	\\x010fb443eb48cc4302a26ea061fb370b3e0000000000000000aa3d2441ac07cdb4723a15470057d7a6ff69f31ee82440404989798499da5097b7a6dd0f4da96f8e81343ec65fd2ff0a
1	171	\\x01d3b9872ead4e742bb4c4d7ce1338114f0000000000000000ea9e3e0de86cb1c119c1ef61ae7d8934cdc18e2f0c4a0007fa906d693469e8277bd2cb011bf9632ad48c4560b20d88ff
1	172	\\x01eb5d50138d4d4023cf1cce5307c33a4f00000000000000002f7812edf8849dff19355b27b580b82645a6a0ff3bbff038ad3418ea2752a7e071ce86cd7400182f54abc8a9891f816f
1	173	\\x014e6e93508e31df9755a19c090278d16c00000000000000004c1b70d77e30f80700cd77bcf97748f00fa81ebbdef3e4d3bb871adb29ca097a5e1259ca4c306346167c72b1689ff17c
1	174	\\x01e8a6af698a4082da69a86eacdbae3b1900000000000000005dc46e94f7272cca032833cedb2884db47d77ced0ccdae431c7a280cc40b5ba064fab8b77f46fc3d34cd7601c724ae46
1	175	\\x016a6e0cbf084a3cb327609b349986fd980000000000000000bb614a4f70616a3116af4166bd51f44213e521e019f9c0651e7772fd0aff9d86909541ee4f684a7700c002892baa043a
1	176	\\x01ebc52467fbfb0d8c53217054358bf7470000000000000000e1b216334624683b56b819fd118384950417757d5150d005d0bd7d2de68df735184e3b9f0c70eb59b18d951647055503
1	177	\\x0174a0270876c9bfa4a5287a16b3c031800000000000000000248c47ac6cd31387dd4eaabaa37bff1b8f9e62c6f121eb31dfc4b2f36fd6b2f996231522c110c77c9d1fcf386f544d7e
1	178	\\x01e96a27676f8fb2bea3db2a4afcde81830000000000000000357afe2d38da9364f2974bc69d2c0f3fd2648a75ada9e9e2a7c6f8c3c58a9a61677cbd17527125e785472a51cab5788c
1	179	\\x019340bec0b5521cfde9f96a04b24d818d0000000000000000f799a3fab5001f92e06c8f24a6b00136f424a9d5757a82b24f9748c007899886839a0bfd3487b6cdd6e766b61c527c1f
1	180	\\x0143ccaf6f6a861d1d6c714cc3d94d63ba0000000000000000ee6734f1ba9bc5dac91627afaad5a630378b978839c65526fc4daf48aa2d179e1ca445f24ff33cba81ea4b1fbdfbb25e
1	181	\\x013840fc3f965e1c94f57836a6b39c3d54000000000000000095c7040de97bff998f305b096092999eb23531b525f6a0ab7983109d43b0ce8e4f63cef28d4b4c5462cac23823fa28b8
1	182	\\x01b1b512dbe0e68c16d216120fb08739490000000000000000af420c3785fe7ec94ebbf8def3c53861f0435f4f39419148093ee2b22f806b323203ccd6a59d7cc3880b759e40e94a5c
1	183	\\x010e6b607479af82f392262a124679ba090000000000000000f076e6263e7ac74a98e676186f65a3f40fb72b84cec70c4ee07a3802edc18c2144fc52b5b9730e9a099e7c2e4c916e2f
1	184	\\x01fcae1ba7aff955b9d79ec663c3637e4000000000000000004686ef875bf617172d9e103899c8ab072eaaae67cd3c0ac66db1c5f77b7b69ab9b4545060bc579522705a84dada76b1f
1	185	\\x01f92abe55f68f224175fa1dcdf37bcee90000000000000000aad4317eac77e7005c095bf8dbf477d49d3885095a309130a2c7b8c45cc273d0b66361e0be6e2de182b27c3e0532b2a3
1	186	\\x0123f518f92957c49312d6860a0c970d2a0000000000000000204e8637f0202cf576301103c489f38e9ca50cb087d06e85839f7f331dd089604433c1de1393e3f629164200df68eb78
1	187	\\x01e14be0fca94bd1b6bfb852f35890805f000000000000000099711a979655e62a5a861d3c1e4cb5a0a0f560b201e12371ab56dd89addfe56242bb513eed1bb8ce3ee90bceebf3a389
1	188	\\x0153de65a1fdb920f54d9527171d377ec30000000000000000be7df293f74afec71f240cffc1d2bf09fed8de546eec6f3c8925aece657d951172b3f347337969fb15aa0e257117f27a
1	189	\\x017d3ef283c4438ac68d41b8c5917f4f3300000000000000000cf5dcc56b5eff16038663b933c3ed7a492d334b9f22edef405f1bcb2253e7c484e96d56383b2745a3d6c53a199a1cb2
1	190	\\x01a4d57328378a4dc363b15a4e0f7c26240000000000000000f5abf22de274fb93fce370544e49213fa535b9d84618373252be218d472eb1acd7ea5afcac6e39675954cde146f9e79f
1	191	\\x0105b2141a40758169d04600713d2ada9100000000000000001a8cc417941d933c13f304f2a2b1516a5422cb8ddc62fbc740a8c92ef312490b9fba388ed4ba2e4d52317022b2b31fef
1	192	\\x01b304219ab5f24f13f9f208fb97a659e400000000000000004dd49eaf41012565b6eb297857f23d617205c1e8c80ba6d21420b1637bbec51bd5bb854c15e09555ee8e6889f9bec16b
1	193	\\x010794fba3099ba10a17c352a0457ea8bd000000000000000007eb8d836d4edc6c530f325ede3c35b1ddd660fff83fd1eafc249a7d25705b3e6c0ac432d1f847bc1b72a3142f4fe81b
1	194	\\x019fde545f9f28f7208b82db4f90206b8f00000000000000004499098e973085d67ebc4859ad7363e72fa5b95e1ec7db1e9d4498dcc66c8796ee8799206b8fb968672c5cf4fc2eb064
1	195	\\x01a03091902861991f6505b3b386cde9690000000000000000fc789f443e7564cfe232f1394495bc02c9620b4ea9d12ab0529fe87734363c72a649d6765af839e4afbdff4b357f26ac
1	196	\\x01b5715b9b28c7708d79eae963da55be8b0000000000000000776554feca5cf345d18f54737486f1ef5836bbe2e4dee6625514d6c7380e0e95e549ff8f36e17453e8222463b6dbdea7
1	197	\\x01a3ee7e4104986a584df134f89024e2d500000000000000009ada8dab9fbcac0d83b55482de04c75c2652412de574657781d9c25d6549affad2a069dddaf203747dd581872a7dc28e
1	198	\\x017c225643bccbc1bc2613320d111a2acf000000000000000078c730049c8ca88bd13998321856bb12b5a1a0efcfbf9ff83707f301e6629170f3a82f62145b9df7fcf0f254570cc51a
1	199	\\x01843e61de38427f4c660ddf5f14df7b4d00000000000000006929b2725f9628042d5a0d5f918e6765efb92a01eb7e2e173662abc212c6e6873f0f4aee4edf13997f289e39c07aed16
1	200	\\x01cbe047b4d23767d67d338f59d7e6be970000000000000000fde11a4e55fbfa8512a0343c961cceeacf533e7b6c11a3504452974c1e0fe931a236028474ad9cb069ada0bac2a56ede
1	201	\\x0153032353e021ceaa057367e597b3b4c70000000000000000460bb524a3dcd839ad8372f297bd4944b823630104ff72c7f3025a49933e6ec42c020ace9a2651d0bac381500df50b1c
1	202	\\x01874cd24e205e732f511e0f43a6da2fdd0000000000000000354d16aea96541efa344b7a896c4d0c3feee940fb9b24992340fb93e122fb8eb790538d2e588fd252ff2a7ee817c43e7
1	203	\\x0147e5ab67df3551244d23db5207a62c3d0000000000000000823f678ffbddaf4b809d60e889e1888cf34f264ae47008c3337ce73216aeb092ec6d01fc7bf0e1bfbd2369e70fa34b49
1	204	\\x01f8c13ae6df113a23062377a33ac68ae20000000000000000e702d500235e79a21a221866351f7b8d390e5b446e83ccbd74c76a89908612920ce58249afd5705966fda4ff85b80cf8
1	205	\\x01459bf99c1dddfa2452cd4c3f0767efc800000000000000005e8e7b699ef4ebfd3842cad8fe1d678101e86824470505f3d471f764a10102215c31df9718eacacf3d84d504a5e535f6
1	206	\\x01fddc496170f6d4b7f394793df2601a0e0000000000000000798a1452032b1e8c2b93c89eb6cb043272a14a08b7635c8a94b84e147a8677bb4f14fac373db2eb394944d5168d71b8f
1	207	\\x0155c9896229faaab0466fbe50911e5fdd0000000000000000d76ce8813454a8e576af633d695380971fb3f1ff8e3a63ff2b20691f63e0045a9de7d2623490716e06470e80bc2e7433
1	208	\\x01c312922a53c5a6debc67d201ca714b1b00000000000000006acd682f2a819ccf11f0c5bab243a42384b82334761cb9052244718d04d7c12985c26f5eea61c3e1d9e08395c44d0f6c
1	209	\\x01517fc72ea16b4c2191534905e7627de0000000000000000029a2efadae2ad7279ddf45947103be9e25d15d4ce8ec71d83e5b20ac3f3d8ff29592ee9ee5e5eda416cb5b83c5f15449
1	210	\\x01e04c443793eaa48c9052155c10e2224700000000000000006c35bd427511e27e2015cc0546ba1a2e6bebd441179499da8d8fc719827a6cae207f0bad66b38ee0ca0a3c580e1b8d31
1	211	\\x01352a0021e4b4158217af1ea9f9ed481e0000000000000000f2bbc49937096f7dc7d33f81e8c33d16d461ac39951964b0dc02f7b17dace6bf319cf286eb4e8167a15426fb8cad50e4
1	212	\\x01ae53a288055e2a3061b5e374efb93a320000000000000000d494581fcdb1684d14024a329bf42955d88619013250fa0600232b73c22affb29db0c3099083920f53ad6fab0e292bb2
1	213	\\x01866b03512f88cbc7b4dc3658831ffbcd0000000000000000dd4676912c263b7d8ed0225966151c2f7019d2b0a86123107e9575ce6bf8917d487be85302f96db31381d51e28961edc
1	214	\\x01350fef01363ba2dd5662c555ff362a3d00000000000000008f5b2d9db133e750674248a24faee169c75e3ae3995743e9472712702ff7974ef8bdc55ee3aaf92cf83fe2809a67b58f
1	215	\\x01b87ea3979a4a63288baf7ab82c8f855300000000000000007512aabe816a6471fa6f5affbc03343a329843b4876999cfc6ee7385bbeef3073a10980056f347fcdf29ec42edb65630
1	216	\\x011fbad6299ebc1c065ac5db111249b44100000000000000000df91f5ffce31a96db6fd824c6cb3c6636a4c0b24b18a1dfb6a10606f4b7548ab8915e0cf3ce188067f3125a25bd4b23
1	217	\\x0147a7e8e208af5d91f957eabcc6c1abc70000000000000000d5862356de8e1e614aecedc557cf27c738a86dbd5b49ccdfeff024aa97f60fe0095603ae543d211d6c41d8ff306be3b9
1	218	\\x01e0908791b175c821d036b80ee3c946db0000000000000000176089ef7f232041f0a2e2d19c814f62d8833eb55d3c3fe94605124a9a52d3cc2d3c816595aa51e1e907c3c3087e3cab
1	219	\\x016bf7752ee48d6ee237045c5d17ecd3a50000000000000000fe12e9002378c9308d13e87743c53d54eaa655339e34eb3426ce60bb3ca50997ed272321326359781c91957f3489d2f3
1	220	\\x012df03bc0fc6e724ac54e7723fa610aa600000000000000002bbf25647b04ff55ec1cd2796d40beaa4c97459f2382cc90e923d3c644c73763d8b047add66499188966ee65e37efd48
1	221	\\x015f38470c8125e98779202a8d9a4081ee0000000000000000f4fd10f8cb62c703da4d5c3c04e69b0f14c1c09db81b47b1d5279ae208b6fb7a26bd993eb3f90e5f13b8c76c803d2b7f
1	222	\\x012c66c9beaf778bfeba2b2f60f67a96dc0000000000000000c1483c9aafac6891e42daeb2ec539796066a54c3fa9209638bca8c149a765ccde299a3b9376b21cd4fd6295ddadecccd
1	223	\\x017fd728f263557769098fb5c40bd8cf4900000000000000004eeb9dd842e5678485295a76a2ca2eed61d12fb03f87a9ddaa70eb673650ac530c619c480f25fee79fe94d6a8772393f
1	224	\\x01a57ea8833aaa3853244fec2220dacb4800000000000000008ce41b56c04bbd417a64a164d7c34f7299a4c6946c13848cb13fb2a275f3e4287829bcd0053af207edace37a3999739a
1	225	\\x01ef1c8b3670ac3b10ff21a123dc69625f0000000000000000f5b59e15db5c90701449f89ea59fc4ca42e078a1852195adb7999948e953dc984ffd1ba39feb9e80684b8fd15595b02c
1	226	\\x01230f04dfa56581b41be12ac3db07466300000000000000008afc4374eeb10718f5992b639cea6e62dc94d75d517d628b5e542f40347170cccca4d0a2aee80986bc6ea805fb4fcb35
1	227	\\x0190fbe658ad98e3d13116003b52f55d930000000000000000d478d4be01c9e056cbf970cbdc4d7912ff1405c5bef560a9785fa7da5f3d697a682d7353e7ee580d7dd2a71ea7400ad8
1	228	\\x01049476e039093b6dd66238eaab680b0700000000000000006a9f7ae63329d66471986fe498dde983d09642b02c60a1c6f3f9b16d98b3f1a058b59603dd29614e80c91ccd8321bda5
1	229	\\x0180b510cb693a43cc2b0e518c804522930000000000000000bf73c35dc57bd4e3d9f6d8cffeac5864293ed86de23b107ecdc70aefca1877c8329a8f527205515895a694a9439c2155
1	230	\\x01deb011087163aa04304910497e8058e40000000000000000386359970061238509f882e1e050bcdc2dd1c9c75a645557f9c325861d8bbaba87b336d937da53b9aadc4f4f3ada357e
1	231	\\x01fe1a4ade7d3fae3208b63aae16591d690000000000000000e55d99f3b1f5ae5d730aa03d9dbf0cbf27601ca7a2140edccdd84c99602f038cfdf5cd33c00896e13f7b3dee1ab73da9
1	232	\\x01144e7423c5901156b5de261e1c36877a0000000000000000c6d12b15247fdecebd98d4af7abd4efacb914a6bab679efb5d919977bd15ce05c81dc20163fd00af59dd02f488ffdfb5
1	233	\\x014393aa387347080a08b2d8ce93e297d000000000000000009ec2941b5e042c1c3f5a893292b12f184e818a3012e48373c000953afc46e139f52a5703dcb01d365e1c5b35b2436967
1	234	\\x017bdb75308a9de9e75874cc4feedb22a90000000000000000bcb90c5205fb09823cf399c367896ae5c03d1dea9470e957a340539cae6281415d846806c8d0e07b94e1273fb4ebe0cc
1	235	\\x01dad4cca0efaa024d445a7c8982de8d8700000000000000000a790281f4bd64ee9cca14e234c11a370f6a9544175f3565a4afec56777a0ffb20e0b36c5f12c1abba0146a0fda3614e
1	236	\\x015c74ecb821eaa5c2b1ae0b2b82274eab00000000000000003cb73430422c225d637bc020e395c80044cdf41412648a3c16a30ab55249d45339b832cd038b43f0063cd03e355d8da7
1	237	\\x01b0cc173f25a6f5f2b73eff492b7e9f2c00000000000000006d5f15650b61cd2ba86a4d465e42e85c4173b6e56b28e96902c6c220342b077d9dbd0632f11b6c6cdf3c4d68abf8fb88
1	238	\\x01d0ed2da0458fd1a5a5f61c6489df777500000000000000009cb23b13a966e9774a57b55b33570c64ffe1d1847d428edc88869d0c35841542f4681215ccf68937b1bff971135f7212
1	239	\\x017d5e524c87db67aabfd882c77065ca3500000000000000001a13be67d161e66771f187ad661d3668299b20aec087c4530a0838ce28a6dcd87ddb9fd7cbdf58a648900c45c0463ae1
1	240	\\x0174b61df409301ebec959cdcffbd49f970000000000000000a76d852b0d13805d46011c2a2092e0713477e736f5f88ab95b27b524ca5675e613e682a7c3cceebd19d3c275f7577a3d
1	241	\\x01351d295cced2ab1a55a1f6ccee9d9ea300000000000000001c52bb730ec481819d0ba5d24e3a48e6deefa880b5422944478b4d28be4dfc4eccb2a79bf2c8fde57a0f3461a833e5d2
1	242	\\x0179082c608ac0d0d99650687aba90e24400000000000000005f7e8ac88b605bd5b78d13beb2b4266a93e448dd34dd406b90480c3925db0f8e85d9f783120620c0707e87accd03d52b
1	243	\\x01ce4bebff7bf565020e48fc67334c9d09000000000000000015b1361e752995e52ea51fa3b8b5b026f841a1ae0ec82ed0e37e35b3258813f770140fe7fe0cb0656841b71e5de0e86a
1	244	\\x0116d17bdc1b08c857bf096123f929b7b700000000000000006a6b176f0fd121e882c65ef9bd0215061b72001412166b7dd7e956af7c34b90d27360ae255c6b0e95671a1e263ef1ca1
1	245	\\x01de57993ee0f5b023f482b60c6090d5b90000000000000000cab643d23d3c432523f8b1911aa6a9dcf45d08fb9060c9c3ec305bfd169677b4c5e7c169f44b969599be33308223d2f9
1	246	\\x01af61cf8c290f93a62fd2fcdde09fc3900000000000000000c000d2501542fb6638bb09bd7de7f5a7f43ff3554b3f290acbf052475d5f5f88707811c962cee45f2c51ce9011a763cf
1	247	\\x014e81e10f34f4b8e77b82c7f6daccd73400000000000000005a073e324ecbe3e856590f80d836c37f945da9dabb48c9f4c96572f126e39fe35b9d73c937c530fd3e6b8589205813e4
1	248	\\x01c59c9e0378fd7e68cc6d06e2f2d41190000000000000000077a91f5b3237507616e2cb116df697cbbbd48ae1a96a0f9f5cf6458178fe9a83d94c665c2d1e79742c7575230e013fb8
1	249	\\x01df66da42de8fbb5e94a8b888548822e7000000000000000064ed217b2f546c8ef8bfbfdbe8497b2a8fa019240f5246ee1f3e71c9376873b81cef6e5e46659a11afab7b50a2ac6e77
1	250	\\x019771696ad12eeb4ae36661d2cf91304a000000000000000024ac83f7a28ea7e9ca6338b289159b8beb8f34b67fb811e19712ec232cbaf65fefb5a1ace74d68b0842018d246677a8b
1	251	\\x01b140bf4cac55761d789bcb52f394aa71000000000000000020e257863a34516dbe665ebfd9dbf188b961d2cf3bdcf2c3e4f2b85415364b084feaf88ebfe1c0ffa3f951922eff9006
1	252	\\x01f34eb56aabc02f304f7c4b7853f908510000000000000000417109a6c300371d0217a8d2e247f651abc469d08df298fb899717c1ba960ab8071a9dbd79654b5c4cdb7dd0d579b1d2
1	253	\\x017a427613499920540fd1aeedd256615d0000000000000000f50aafb770da82602a0c9b6cc278734cc1ef822fb8723234265af18d4e36af4c10b39ad66a65956182e37f0012074114
1	254	\\x0163fbc25b5f837c87f8d198ca6aaa2b690000000000000000c70d756b7c594e3c2ea2564534114dc9dd5efb0d36fbc5119a064b28d0abc3265c353695a57a4c3952ebc13865da29db
1	255	\\x013080518913fe9b05cd0b0e9781e494160000000000000000ddacd11c7f87cd89a076a2da1c68180beeef26d0c9f7d531cf6137d3f768398646a01aabc5e7bf4a9a931be8a51427c0
\.


--
-- Data for Name: shreds; Type: TABLE DATA; Schema: keys; Owner: -
--

COPY keys.shreds (one, count) FROM stdin;
t	1
\.


--
-- Data for Name: customers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.customers (no, customer_id, email, segment, note) FROM stdin;
1	7	anna@example.org	c	moved
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.orders (id, name, amount) FROM stdin;
2	two	22.00
\.


--
-- Name: dead_letter_id_seq; Type: SEQUENCE SET; Schema: deltarelay; Owner: -
--

SELECT pg_catalog.setval('deltarelay.dead_letter_id_seq', 1, true);


--
-- Name: position_log_id_seq; Type: SEQUENCE SET; Schema: deltarelay; Owner: -
--

SELECT pg_catalog.setval('deltarelay.position_log_id_seq', 1, false);


--
-- Name: runs_id_seq; Type: SEQUENCE SET; Schema: deltarelay; Owner: -
--

SELECT pg_catalog.setval('deltarelay.runs_id_seq', 7, true);


--
-- Name: access_number_seq; Type: SEQUENCE SET; Schema: erasure; Owner: -
--

SELECT pg_catalog.setval('erasure.access_number_seq', 1, false);


--
-- Name: event_number_seq; Type: SEQUENCE SET; Schema: erasure; Owner: -
--

SELECT pg_catalog.setval('erasure.event_number_seq', 20, true);


--
-- Name: reading_id_seq; Type: SEQUENCE SET; Schema: keys; Owner: -
--

SELECT pg_catalog.setval('keys.reading_id_seq', 1, false);


--
-- Name: dead_letter dead_letter_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (id);


--
-- Name: dead_letter dead_letter_target_key_digest_key; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.dead_letter
    ADD CONSTRAINT dead_letter_target_key_digest_key UNIQUE (target, key_digest);


--
-- Name: position_log position_log_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.position_log
    ADD CONSTRAINT position_log_pkey PRIMARY KEY (id);


--
-- Name: position position_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay."position"
    ADD CONSTRAINT position_pkey PRIMARY KEY (target);


--
-- Name: progress progress_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (target);


--
-- Name: runs runs_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (target, id);


--
-- Name: written_anew written_anew_pkey; Type: CONSTRAINT; Schema: deltarelay; Owner: -
--

ALTER TABLE ONLY deltarelay.written_anew
    ADD CONSTRAINT written_anew_pkey PRIMARY KEY (relation, request);


--
-- Name: checkpoint checkpoint_pkey; Type: CONSTRAINT; Schema: deltarelay_anchor; Owner: -
--

ALTER TABLE ONLY deltarelay_anchor.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (origin, size);


--
-- Name: access access_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.access
    ADD CONSTRAINT access_pkey PRIMARY KEY (number);


--
-- Name: carrier carrier_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.carrier
    ADD CONSTRAINT carrier_pkey PRIMARY KEY (pipeline, table_name, target);


--
-- Name: certificate certificate_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.certificate
    ADD CONSTRAINT certificate_pkey PRIMARY KEY (request, issued_at);


--
-- Name: event event_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (number);


--
-- Name: known known_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.known
    ADD CONSTRAINT known_pkey PRIMARY KEY (request, name, digest);


--
-- Name: lease lease_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (one);


--
-- Name: mark mark_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.mark
    ADD CONSTRAINT mark_pkey PRIMARY KEY (request, name, mark);


--
-- Name: register register_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.register
    ADD CONSTRAINT register_pkey PRIMARY KEY (one);


--
-- Name: request request_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.request
    ADD CONSTRAINT request_pkey PRIMARY KEY (id);


--
-- Name: run run_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);


--
-- Name: step step_pkey; Type: CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (run, table_name, step);


--
-- Name: epoch epoch_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (epoch);


--
-- Name: identifier identifier_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.identifier
    ADD CONSTRAINT identifier_pkey PRIMARY KEY (lookup);


--
-- Name: key key_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.key
    ADD CONSTRAINT key_pkey PRIMARY KEY (key_id);


--
-- Name: lookup_key lookup_key_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.lookup_key
    ADD CONSTRAINT lookup_key_pkey PRIMARY KEY (one);


--
-- Name: reading reading_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.reading
    ADD CONSTRAINT reading_pkey PRIMARY KEY (id);


--
-- Name: shard shard_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (epoch, shard);


--
-- Name: shreds shreds_pkey; Type: CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.shreds
    ADD CONSTRAINT shreds_pkey PRIMARY KEY (one);


--
-- Name: customers customers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (no);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: event_request_number_idx; Type: INDEX; Schema: erasure; Owner: -
--

CREATE INDEX event_request_number_idx ON erasure.event USING btree (request, number);


--
-- Name: identifier_epoch_idx; Type: INDEX; Schema: keys; Owner: -
--

CREATE INDEX identifier_epoch_idx ON keys.identifier USING btree (epoch);


--
-- Name: identifier_token_idx; Type: INDEX; Schema: keys; Owner: -
--

CREATE INDEX identifier_token_idx ON keys.identifier USING btree (token);


--
-- Name: key_epoch_idx; Type: INDEX; Schema: keys; Owner: -
--

CREATE INDEX key_epoch_idx ON keys.key USING btree (epoch) WHERE (shredded_at IS NULL);


--
-- Name: key_token_class_idx; Type: INDEX; Schema: keys; Owner: -
--

CREATE UNIQUE INDEX key_token_class_idx ON keys.key USING btree (token, class) WHERE (shredded_at IS NULL);


--
-- Name: checkpoint never_changes; Type: TRIGGER; Schema: deltarelay_anchor; Owner: -
--

CREATE TRIGGER never_changes BEFORE DELETE OR UPDATE OR TRUNCATE ON deltarelay_anchor.checkpoint FOR EACH STATEMENT EXECUTE FUNCTION deltarelay_anchor.never_changes();


--
-- Name: checkpoint only_grows; Type: TRIGGER; Schema: deltarelay_anchor; Owner: -
--

CREATE TRIGGER only_grows BEFORE INSERT ON deltarelay_anchor.checkpoint FOR EACH ROW EXECUTE FUNCTION deltarelay_anchor.only_grows();


--
-- Name: access never_changes; Type: TRIGGER; Schema: erasure; Owner: -
--

CREATE TRIGGER never_changes BEFORE DELETE OR UPDATE OR TRUNCATE ON erasure.access FOR EACH STATEMENT EXECUTE FUNCTION erasure.never_changes();


--
-- Name: carrier never_changes; Type: TRIGGER; Schema: erasure; Owner: -
--

CREATE TRIGGER never_changes BEFORE DELETE OR UPDATE OR TRUNCATE ON erasure.carrier FOR EACH STATEMENT EXECUTE FUNCTION erasure.never_changes();


--
-- Name: certificate never_changes; Type: TRIGGER; Schema: erasure; Owner: -
--

CREATE TRIGGER never_changes BEFORE DELETE OR UPDATE OR TRUNCATE ON erasure.certificate FOR EACH STATEMENT EXECUTE FUNCTION erasure.never_changes();


--
-- Name: event never_changes; Type: TRIGGER; Schema: erasure; Owner: -
--

CREATE TRIGGER never_changes BEFORE DELETE OR UPDATE OR TRUNCATE ON erasure.event FOR EACH STATEMENT EXECUTE FUNCTION erasure.never_changes();


--
-- Name: certificate certificate_request_fkey; Type: FK CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.certificate
    ADD CONSTRAINT certificate_request_fkey FOREIGN KEY (request) REFERENCES erasure.request(id);


--
-- Name: event event_request_fkey; Type: FK CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.event
    ADD CONSTRAINT event_request_fkey FOREIGN KEY (request) REFERENCES erasure.request(id);


--
-- Name: known known_request_fkey; Type: FK CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.known
    ADD CONSTRAINT known_request_fkey FOREIGN KEY (request) REFERENCES erasure.request(id);


--
-- Name: mark mark_request_fkey; Type: FK CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.mark
    ADD CONSTRAINT mark_request_fkey FOREIGN KEY (request) REFERENCES erasure.request(id);


--
-- Name: step step_run_fkey; Type: FK CONSTRAINT; Schema: erasure; Owner: -
--

ALTER TABLE ONLY erasure.step
    ADD CONSTRAINT step_run_fkey FOREIGN KEY (run) REFERENCES erasure.run(id);


--
-- Name: identifier identifier_epoch_fkey; Type: FK CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.identifier
    ADD CONSTRAINT identifier_epoch_fkey FOREIGN KEY (epoch) REFERENCES keys.epoch(epoch);


--
-- Name: key key_epoch_fkey; Type: FK CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.key
    ADD CONSTRAINT key_epoch_fkey FOREIGN KEY (epoch) REFERENCES keys.epoch(epoch);


--
-- Name: lookup_key lookup_key_epoch_fkey; Type: FK CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.lookup_key
    ADD CONSTRAINT lookup_key_epoch_fkey FOREIGN KEY (epoch) REFERENCES keys.epoch(epoch);


--
-- Name: shard shard_epoch_fkey; Type: FK CONSTRAINT; Schema: keys; Owner: -
--

ALTER TABLE ONLY keys.shard
    ADD CONSTRAINT shard_epoch_fkey FOREIGN KEY (epoch) REFERENCES keys.epoch(epoch);


--
-- PostgreSQL database dump complete
--

\unrestrict X13AVxAF41ri6Rd5ECxcqLocXca4QjNgjtM71D8yjdR1ePXdRSXFtqaQEYXXqza

