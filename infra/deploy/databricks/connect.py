"""From another machine, over Databricks Connect. Guide: docs/deploy/databricks.md"""

import os

from databricks.connect import DatabricksSession

from deltarelay import ChangeFeed, Pipeline, PostgresSink

spark = DatabricksSession.builder.getOrCreate()  # DATABRICKS_HOST, DATABRICKS_TOKEN, DATABRICKS_CLUSTER_ID
spark.conf.set("spark.sql.session.timeZone", "UTC")
spark.conf.set("spark.sql.ansi.enabled", "true")
sink = PostgresSink(os.environ["WAREHOUSE_DSN"], table="public.orders")
print(Pipeline(ChangeFeed(spark, "hive_metastore.sales.orders"), sink, key=["id"]).run())
