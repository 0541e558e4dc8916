"""A Spark Connect server that demands a token: the right one works, any other is one error that does not show it."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.commands import Database, Project, create_source
from tests.acceptance.test_run_over_connect import NO_JVM, use_server
from tests.fixtures.fix_connect import connect_server, connect_session

TOKEN = "right-2f8c1d77"
WRONG = "wrong-91be04aa"


def test_a_server_with_a_token(project: Project, database: Database, delta_path: str, tmp_path: Path) -> None:
    with connect_server(tmp_path, {"spark.connect.authenticate.token": TOKEN}) as address:
        encrypted, address = (
            address,
            address.replace("127.0.0.1", "localhost"),
        )  # the only host to which it is sent in clear
        with connect_session(f"{address}/;token={TOKEN}") as session:
            create_source(session, delta_path)
            session.sql(f"insert into delta.`{delta_path}` values (1, 'a', 2)")

        use_server(project, delta_path, f"{address}/;token=${{SPARK_TOKEN}}")
        done = project.run("run", own_jvm=NO_JVM, environment={"SPARK_TOKEN": TOKEN})
        assert done.code == 0, done.err
        assert [row[0] for row in database.rows("people")] == [1]

        wrong = project.run("run", "--debug", own_jvm=NO_JVM, environment={"SPARK_TOKEN": WRONG})
        use_server(project, delta_path, address)
        missing = project.run("run", own_jvm=NO_JVM)
        for done in (wrong, missing):
            assert done.code == 2, done.err
            assert "refuses the token" in done.err
            assert "spark.remote" in done.err
            assert not [word for word in (TOKEN, WRONG) if word in done.err + done.out]
        assert "Traceback" not in missing.err

        use_server(project, delta_path, f"{encrypted}/;token=${{SPARK_TOKEN}}")
        done = project.run("plan", own_jvm=NO_JVM, environment={"SPARK_TOKEN": TOKEN})
        assert (done.code, "with a token PySpark uses TLS" in done.err, TOKEN in done.err) == (2, True, False), done.err

        use_server(project, delta_path, address)
        # The variable that PySpark itself knows
        done = project.run("run", own_jvm=NO_JVM, environment={"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN})
        assert done.code == 0, done.err
