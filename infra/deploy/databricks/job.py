"""The command `deltarelay` as a task of Databricks. Guide: docs/deploy/databricks.md"""

import sys

from pyspark.sql import SparkSession

from infra.cli.main import main

SparkSession.builder.getOrCreate()  # the session of the cluster, which the command uses and leaves running
try:
    main(sys.argv[1:])
except SystemExit as ended:
    if ended.code:  # the task has failed if an exception is raised
        raise RuntimeError(f"deltarelay ended with exit code {ended.code}") from None
