"""Lists the fixture plugins, nothing else."""

pytest_plugins = [
    # Others import these
    "tests.fixtures.fix_seed",
    "tests.fixtures.fix_order",
    "tests.fixtures.fix_report",
    "tests.fixtures.fix_spark",
    "tests.fixtures.fix_postgres",
    "tests.fixtures.fix_spark_cluster",
    "tests.fixtures.fix_connect",
    "tests.fixtures.fix_kafka",
    "tests.fixtures.fix_commands",
    "tests.fixtures.fix_aws",
    "tests.fixtures.fix_delta_rs",
    "tests.fixtures.fix_s3_writers",
    "tests.fixtures.fix_pgbouncer",
    "tests.fixtures.fix_prometheus",
    "tests.fixtures.fix_spread",
    "tests.fixtures.fix_trail",
    "tests.fixtures.fix_sealed_states",
    "tests.fixtures.fix_closures",
]
