"""A user's own job, as it is given to spark-submit: table, dsn."""

import sys

from pyspark.sql import SparkSession

from deltarelay import ChangeFeed, Pipeline, PostgresSink

table, dsn = sys.argv[1:]
spark = SparkSession.builder.appName("nightly").getOrCreate()
pipeline = Pipeline(ChangeFeed(spark, table), PostgresSink(dsn, table="public.customers"), key=["id"], start=1)
print("position", pipeline.run().position)
