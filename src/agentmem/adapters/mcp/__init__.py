"""The store as an MCP server, on the official SDK. Nothing outside this package imports the SDK."""
