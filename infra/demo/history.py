"""The history of the demo's Delta table ``customers``: one SQL statement per commit, and nothing random in it.

It uses no feature of this project. Names, balances and other values are hashes of the customer's number: every run of the
demo creates the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Commit", "BEFORE", "LATER", "LIVE", "COPIED_VERSION", "WATCHED", "EVENTFUL", "AUDITED", "write"]

COPIED_VERSION = 1
"""The version of the initial copy; later changes come from the change feed."""

WATCHED = {
    5: "never touched",
    17: "is now 5017",
    5017: "was 17",
    18: "joined to 5017",
    3: "deleted",
    2: "replaced",
    12: "restored",
    1100: "came late",
    1101: "came live",
    1: "left live",
}
"""Customers that are shown at the end, and what happened to them."""

EVENTFUL = ((17, 5017, 3), (12, 2, 1100), (1101, 1))
"""Customers whose events are shown after ``BEFORE``, ``LATER`` and ``LIVE``."""

AUDITED = 12
"""A customer that is deleted by mistake and restored, whose history is queried from the trail."""


@dataclass(frozen=True, slots=True)
class Commit:
    operation: str
    story: str
    statement: str
    """SQL; ``{table}`` is replaced by the table."""


def write(spark: SparkSession, table: str, commit: Commit) -> int | None:
    """Make one commit. → the number of changed rows, where Delta reports it"""
    name = "delta.`" + table.replace("`", "``") + "`"
    result = spark.sql(commit.statement.replace("{table}", name)).first()
    return int(result["num_affected_rows"]) if result is not None and "num_affected_rows" in result else None


def _number(what: str, below: int) -> str:
    return f"pmod(hash(id, '{what}'), {below})"


def _one_of(what: str, words: str) -> str:
    quoted = ", ".join(f"'{word}'" for word in words.split())
    return f"element_at(array({quoted}), {_number(what, len(words.split()))} + 1)"


_FIRST_NAMES = (
    "Ada Björn Chloé Dario Elif Femke Greta Hugo Inès Jonas Katja Łukasz Marta Nuno Olga Pablo Rosa Søren Tomás Vera"
)
_LAST_NAMES = (
    "Almeida Berg Costa Dubois Ek Ferrari García Hansen Ilves Jansen Kowal Lund Moreau Nowak Olsen Peeters Ricci "
    "Schmidt Torres Weber"
)


def _customers(numbers: str) -> str:
    """The query for customers with these numbers (``numbers`` has one column, ``id``)."""
    return f"""
      select
        cast(id as bigint) as customer_id,
        concat({_one_of("first name", _FIRST_NAMES)}, ' ', {_one_of("last name", _LAST_NAMES)}) as name,
        concat('customer', id, '@example.com') as email,
        {_one_of("country", "DE DE DE FR FR ES ES IT NL NO PL PT")} as country,
        cast({_number("balance", 500_000)} / 100 as decimal(12, 2)) as balance,
        timestampadd(second, {_number("time", 4 * 365 * 86_400)}, timestamp '2021-01-01 00:00:00Z') as signed_up,
        filter(array('app', 'business', 'newsletter'), tag -> pmod(hash(id, tag), 3) = 0) as tags
      from ({numbers})"""


BEFORE = (
    Commit(
        "create table",
        "customers, its change feed on",
        """
        create table {table} (
          customer_id bigint not null,
          name string,
          email string,
          country string,
          balance decimal(12, 2),
          signed_up timestamp,
          tags array<string>
        )
        using delta
        partitioned by (country)
        tblproperties ('delta.enableChangeDataFeed' = 'true')
        """,
    ),
    Commit("insert", "the first 1,000 customers", "insert into {table} " + _customers("select id from range(1, 1001)")),
    Commit(
        "update",
        "25.00 for those who signed up in 2021",
        "update {table} set balance = balance + 25.00 where signed_up < timestamp '2022-01-01 00:00:00Z'",
    ),
    Commit("delete", "every 25th customer leaves", "delete from {table} where customer_id % 25 = 3"),
    Commit(
        "merge",
        "20 double accounts joined (new keys), 20 new",
        f"""
        merge into {{table}} as t
        using (
          select 'joined' as action, * from ({_customers("select explode(sequence(17, 967, 50)) as id")})
          union all
          select 'closed' as action, * from ({_customers("select explode(sequence(18, 968, 50)) as id")})
          union all
          select 'new' as action, * from ({_customers("select id from range(1001, 1021)")})
        ) as s
        on t.customer_id = s.customer_id
        when matched and s.action = 'joined' then update set customer_id = t.customer_id + 5000
        when matched and s.action = 'closed' then delete
        when not matched and s.action = 'new' then insert
          (customer_id, name, email, country, balance, signed_up, tags)
          values (s.customer_id, s.name, s.email, s.country, s.balance, s.signed_up, s.tags)
        """,
    ),
    Commit("insert", "60 more customers", "insert into {table} " + _customers("select id from range(1021, 1081)")),
)

LATER = (
    Commit(
        "overwrite",
        "Norway's rows replaced (replace where)",
        """
        insert into {table} replace where country = 'NO'
        select customer_id, name, email, country, balance + 10.00 as balance, signed_up, tags
        from {table} where country = 'NO' and customer_id % 7 <> 0
        """,
    ),
    Commit("add column", "loyalty", "alter table {table} add columns (loyalty string)"),
    Commit(
        "update",
        "loyalty by balance",
        "update {table} set loyalty = case when balance >= 4000 then 'gold' else 'silver' end where balance >= 2000",
    ),
    Commit(
        "update",
        "the Polish newsletter begins",
        "update {table} set tags = array_union(tags, array('newsletter')) where country = 'PL'",
    ),
    Commit("delete", "all of Italy, by mistake", "delete from {table} where country = 'IT'"),
    Commit("restore", "back to version 9", "restore table {table} to version as of 9"),
    Commit("optimize", "small files made large; no row changes", "optimize {table}"),
    Commit(
        "update",
        "interest for the gold customers",
        "update {table} set balance = cast(balance * 1.01 as decimal(12, 2)) where loyalty = 'gold'",
    ),
    Commit(
        "insert",
        "20 customers with loyalty",
        "insert into {table} select *, 'new' as loyalty from (" + _customers("select id from range(1081, 1101)") + ")",
    ),
)

LIVE = (
    Commit(
        "insert",
        "a customer signs up",
        "insert into {table} select *, 'new' as loyalty from (" + _customers("select id from range(1101, 1102)") + ")",
    ),
    Commit("update", "and pays in 100.00", "update {table} set balance = balance + 100.00 where customer_id = 1101"),
    Commit("delete", "customer 1 leaves", "delete from {table} where customer_id = 1"),
)
"""Written while the table is being followed."""
