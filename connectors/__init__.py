"""The sinks. Each package here implements ``cdf.sink.Sink``; none imports another."""
