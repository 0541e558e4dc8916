"""What the sink stores in Kafka about its own work: the lease of the runner and the position."""
