"""The sink that keeps an audit trail."""
