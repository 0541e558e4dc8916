"""The sinks. Each package here implements ``cdf.sink.contract.Sink``; none knows another."""
