"""The verbs of a store as tools for models: one definition for MCP, HTTP and every framework.

```python
from agentmem import Store
from agentmem.tools import Toolbox

with Store.open("work.db", project="acme") as store:
    tools = Toolbox(store)
    print(tools.call("note", {"notes": [{"kind": "goal", "title": "Check example.com"}]}).text)
    print(tools.call("resume", {}).text)
```
"""

from agentmem.tools.tool import Reply, Tool
from agentmem.tools.toolbox import Toolbox

__all__ = ["Reply", "Tool", "Toolbox"]
