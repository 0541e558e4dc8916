"""Tables on S3: one block of settings, and everything that follows from it for Spark, delta-rs and boto3."""
