"""The status page of ``deltarelay serve``: read-only, rendered on the server, without a JVM."""
