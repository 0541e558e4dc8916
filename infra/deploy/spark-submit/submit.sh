#!/bin/sh
# Guide: docs/deploy/spark-submit.md
#   ./submit.sh job.py                                            your own job
#   ./submit.sh run.py run --config /etc/deltarelay/orders.yaml   any command of deltarelay
set -eu
# The executors' Python: it must exist on every worker, with deltarelay installed
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-/opt/deltarelay/bin/python}"
exec "${SPARK_HOME:?is not set}/bin/spark-submit" \
  --master "${SPARK_MASTER:-local[2]}" \
  --driver-memory 2g \
  --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
  --exclude-packages org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  --conf spark.sql.session.timeZone=UTC \
  "$@"
