"""What operators see: metrics, notifications, lineage, the status page; none of them can slow or stop a pipeline."""
