"""Your own job: one table, one target. Guide: docs/deploy/spark-submit.md"""

import os

from pyspark.sql import SparkSession

from deltarelay import ChangeFeed, Pipeline, PostgresSink

spark = SparkSession.builder.appName("orders").getOrCreate()
sink = PostgresSink(os.environ["WAREHOUSE_DSN"], table="public.orders")
print(Pipeline(ChangeFeed(spark, "/lake/orders"), sink, key=["id"]).run())
