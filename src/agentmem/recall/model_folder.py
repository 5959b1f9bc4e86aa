"""What a folder of an embedding model says about itself: its graph, its tokenizer, how token vectors become one.

The layout is that of sentence-transformers with an ONNX export: `modules.json`, `1_Pooling/config.json`,
`sentence_bert_config.json`, `config_sentence_transformers.json`, `tokenizer.json`, and `onnx/model.onnx` or `model.onnx`.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from agentmem.errors import InvalidInput, ModelDamaged, ModelMissing, shown

__all__ = ["Folder", "Pooling", "read_folder"]

_GRAPHS: Final = ("onnx/model.onnx", "model.onnx")
_TOKENS: Final = 512  # where no file says more or less
_QUERY_PROMPTS: Final = ("query",)
_TEXT_PROMPTS: Final = ("document", "passage", "corpus")


class Pooling(enum.Enum):
    """How the vectors of the tokens become that of the text."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"


_SWITCHES: Final = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": Pooling.MEAN,  # the same direction, and all rows are made length 1
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
    "pooling_mode_lasttoken": Pooling.LAST,
}


@frozen
class Folder:
    """A model's files and what its configuration says.

    Attributes:
        name: The folder's name, or the model's.
        graph: The ONNX file.
        tokenizer: The `tokenizer.json`.
        pooling: Used where the graph gives the vectors of tokens only.
        max_tokens: What is read of a text, special tokens included.
        dim: Components of a vector; None where only the graph tells.
        query_prompt: Stands before each query.
        text_prompt: Stands before each other text.
        lower: Texts are made lower case first.
        unread: A module between pooling and vector that is not in `tokens -> pooling`, such as `Dense`.
        graph_sha256: What the graph has to hash to; None for any.
        tokenizer_sha256: What the tokenizer has to hash to; None for any.
    """

    name: str
    graph: Path
    tokenizer: Path
    pooling: Pooling = Pooling.MEAN
    max_tokens: int = _TOKENS
    dim: int | None = None
    query_prompt: str = ""
    text_prompt: str = ""
    lower: bool = False
    unread: str | None = None
    graph_sha256: str | None = None
    tokenizer_sha256: str | None = None


def read_folder(path: Path) -> Folder:
    """What the folder says about its model.

    Raises:
        ModelMissing: There is no graph or no tokenizer.
        ModelDamaged: A file of the configuration does not parse.
        InvalidInput: The configuration asks for what is not supported.
    """
    if not path.is_dir():
        raise ModelMissing(f"There is no folder {shown(str(path))}", next="Give the folder that the model lies in.")
    graph = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if graph is None:
        raise ModelMissing(f"The folder {shown(str(path))} has no ONNX graph", why=f"Looked for {' and '.join(_GRAPHS)}.",
                           next="Export the model to ONNX, or give another folder.")  # fmt: skip
    tokenizer = next((at / "tokenizer.json" for at in (path, graph.parent) if (at / "tokenizer.json").is_file()), None)
    if tokenizer is None:
        raise ModelMissing(f"The folder {shown(str(path))} has no tokenizer.json",
                           next="Save the model's fast tokenizer there, or give another folder.")  # fmt: skip
    kinds = _modules(path)
    pooling = _json(path / "1_Pooling" / "config.json")
    sentence = _json(path / "sentence_bert_config.json")
    query, text = _prompts(_json(path / "config_sentence_transformers.json"))
    if (query or text) and pooling.get("include_prompt") is False:
        raise InvalidInput(f"The model in {shown(str(path))} leaves its prompt out of the pooling",
                           why="That is not supported.", next="Use another model.")  # fmt: skip
    return Folder(
        name=path.resolve().name,
        graph=graph,
        tokenizer=tokenizer,
        pooling=_pooling(path, pooling),
        max_tokens=_max_tokens(sentence, _json(path / "config.json"), _json(path / "tokenizer_config.json")),
        dim=_whole(pooling.get("word_embedding_dimension")),
        query_prompt=query,
        text_prompt=text,
        lower=sentence.get("do_lower_case") is True,
        unread=next((kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")), None),
    )


def _modules(path: Path) -> list[str]:
    listed = _json(path / "modules.json", of=list)
    return [str(each.get("type", "")).rpartition(".")[2] for each in listed if isinstance(each, dict)]


def _pooling(path: Path, config: dict[str, Any]) -> Pooling:
    asked = config.get("pooling_mode")
    names = (
        [asked]
        if isinstance(asked, str)
        else [name for name in config if name.startswith("pooling_mode_") and config[name]]
    )
    found = {_SWITCHES.get(name) or _SWITCHES.get(f"pooling_mode_{name}") or _by_value(name) for name in names}
    if not found:
        return Pooling.MEAN
    pooling = found.pop()
    if pooling is None or found:
        known = ", ".join(mode.value for mode in Pooling)
        raise InvalidInput(
            f"The model in {shown(str(path))} pools in a way that is not supported",
            why=f"Its configuration says {shown(names)}; one of {known} is.",
            next="Use another model.",
        )
    return pooling


def _by_value(name: str) -> Pooling | None:
    return next((mode for mode in Pooling if mode.value == name), None)


def _prompts(config: dict[str, Any]) -> tuple[str, str]:
    """The prompts of queries and of other texts; one named as the default stands for both where they have none."""
    prompts = config.get("prompts")
    named = (
        {str(name): text for name, text in prompts.items() if isinstance(text, str)}
        if isinstance(prompts, dict)
        else {}
    )
    default = named.get(str(config.get("default_prompt_name")), "")

    def first(names: tuple[str, ...]) -> str:
        return next((named[name] for name in names if name in named), default)

    return first(_QUERY_PROMPTS), first(_TEXT_PROMPTS)


def _max_tokens(sentence: dict[str, Any], config: dict[str, Any], tokenizer: dict[str, Any]) -> int:
    said = _whole(sentence.get("max_seq_length")) or _whole(tokenizer.get("model_max_length")) or _TOKENS
    places = _whole(config.get("max_position_embeddings"))
    if places and str(config.get("model_type", "")).endswith("roberta"):
        places -= 2  # the family begins to count positions after the padding's id
    return max(1, min(said, places or said, 8192 if _whole(sentence.get("max_seq_length")) else _TOKENS))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _json(path: Path, of: type = dict) -> Any:
    """What a file of the configuration holds; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return of()
    except (ValueError, OSError) as error:
        raise ModelDamaged(f"The file {shown(str(path))} cannot be read as JSON", why=str(error),
                           next="Get the model's folder again.") from error  # fmt: skip
    if not isinstance(found, of):
        raise ModelDamaged(
            f"The file {shown(str(path))} does not hold what it should",
            why=f"It is no JSON {'object' if of is dict else 'array'}.",
            next="Get the model's folder again.",
        )
    return found
