"""The tool by which a model reads what its window has cut: `read_event`."""

from __future__ import annotations

from agentmem import limits
from agentmem.harness.toolset import Call, Tool


def read_event() -> Tool:
    """The tool `read_event`, by which a model reads what its window has cut, in the session that the call is in."""

    def run(call: Call) -> str:
        session = call.store.sessions.get(call.session)
        piece = session.read(
            call.input["event"], call.input.get("offset", 0), limit=call.input.get("limit", limits.PIECE_CHARS)
        )
        more = f"\n[{piece.total} characters in all; go on with offset {piece.next}]" if piece.next is not None else ""
        return f"{piece.text}{more}"

    return Tool(
        "read_event",
        "Read an earlier event of this conversation in full, a piece at a time: what is cut or only named by its #number.",
        {
            "type": "object",
            "properties": {
                "event": {"type": "integer", "description": "The number after #"},
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Where to begin, in characters; 0 by default",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 100_000,
                    "description": "At most so many characters",
                },
            },
            "required": ["event"],
        },
        run,
        idempotent=True,
    )
