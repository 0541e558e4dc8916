"""One table, one target; the connection string comes from AWS Secrets Manager. Guide: docs/deploy/emr.md"""

import boto3
from pyspark.sql import SparkSession

from deltarelay import ChangeFeed, Pipeline, PostgresSink

dsn = boto3.client("secretsmanager").get_secret_value(SecretId="deltarelay/warehouse")["SecretString"]
spark = SparkSession.builder.appName("orders").getOrCreate()
pipeline = Pipeline(ChangeFeed(spark, "s3://my-lake/orders"), PostgresSink(dsn, table="public.orders"), key=["id"])
print(pipeline.run())
