"""The three ways in: batch, stream, snapshot."""
