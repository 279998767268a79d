"""For MkDocs: the notebook of the tour, with its stored outputs, is the body of docs/tour.md."""

import json
import pathlib
from typing import Any

TOUR = pathlib.Path(__file__).parent / "examples" / "tour.ipynb"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri != "tour.md":
        return markdown
    title, _, body = as_markdown(json.loads(TOUR.read_text())).partition("\n")
    return f"{title}\n\n{markdown}\n{body}"


def as_markdown(notebook: dict[str, Any]) -> str:
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output.get("data", {}):
                image = "".join(output["data"]["image/png"].split())
                parts.append(f"![The figure that this cell draws](data:image/png;base64,{image})")
    return "\n\n".join(parts)
