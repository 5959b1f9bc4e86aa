"""How well what was written is found again: agentmem beside simple methods, on the same records and questions."""
