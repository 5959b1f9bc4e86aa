"""The store as a server on a loopback address: MCP over streamable HTTP, and each tool as a plain request."""
