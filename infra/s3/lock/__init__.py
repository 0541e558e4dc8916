"""The lock table in DynamoDB by which several clusters write one Delta table on S3."""
