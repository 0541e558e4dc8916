"""A job of spark-submit that tries several Pythons on the workers: table, dsn, and the Pythons. A line of JSON each."""

import json
import sys

from pyspark.sql import SparkSession

from deltarelay import CdfError, ChangeFeed, Pipeline, PostgresSink

table, dsn, *pythons = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
for python in pythons:
    spark.sparkContext.pythonExec = python
    pipeline = Pipeline(ChangeFeed(spark, table), PostgresSink(dsn, table="public.customers"), key=["id"], start=1)
    try:
        print(json.dumps({"position": pipeline.run().position}))
    except CdfError as error:
        print(json.dumps(error.to_dict()))
