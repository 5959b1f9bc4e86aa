"""The hooks of agents' hosts: memory that comes without being asked, and never breaks the host."""
