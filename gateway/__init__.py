"""The HTTP and SSE face of Fleet."""
