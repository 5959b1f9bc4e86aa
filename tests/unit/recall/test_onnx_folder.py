"""Any sentence-transformers folder with an ONNX graph: what its configuration says is done, what is not supported is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as models
import pytest
from onnx import TensorProto
from onnx_models import DIM, STANDARD_INPUTS, STANDARD_OUTPUTS, TABLE, WORDS, expected, folder, graph

from agentmem.errors import AgentMemError, InvalidInput, ModelDamaged, ModelMissing
from agentmem.recall.embedder import Embedder, OnnxEmbedder, embed_queries

TEXT = "red cars house ."
TOKENS = ("[CLS]", "red", "car", "##s", "house", ".", "[SEP]")


def rows(*words: str) -> np.ndarray:
    return TABLE[[WORDS.index(word) for word in words]]


def unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector))


def test_a_folder_is_enough(tmp_path: Path) -> None:
    """A folder with graph, tokenizer and pooling gives an embedder; padding of a batch leaves no trace."""
    model = OnnxEmbedder(folder(tmp_path / "toy"))
    assert isinstance(model, Embedder)
    assert model.dim == DIM
    assert model.id.startswith("toy:")
    found = model.embed([TEXT, "red", ""])
    assert np.allclose(found[0], expected(*TOKENS), atol=1e-6)
    assert np.allclose(found[1], expected("[CLS]", "red", "[SEP]"), atol=1e-6)
    assert np.allclose(found[2], expected("[CLS]", "[SEP]"), atol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "of"),
    [
        ("mean", lambda all_: all_.mean(axis=0)),
        ("cls", lambda all_: all_[0]),
        ("max", lambda all_: all_.max(axis=0)),
        ("lasttoken", lambda all_: all_[-1]),
    ],
)
@pytest.mark.parametrize("style", ["switches", "name"])
def test_pooling(tmp_path: Path, pooling: str, of: Any, style: str) -> None:
    """Each way of pooling is read from the configuration, in its older and its newer form, also where texts are padded."""
    switch = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}.get(pooling, pooling)
    switches = {
        f"pooling_mode_{name}": name == switch for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    }
    config = {"word_embedding_dimension": DIM} | (switches if style == "switches" else {"pooling_mode": pooling})
    found = OnnxEmbedder(folder(tmp_path, **{"1_Pooling/config.json": config})).embed(["red", TEXT])
    assert np.allclose(found[0], unit(of(rows("[CLS]", "red", "[SEP]"))), atol=1e-6)
    assert np.allclose(found[1], unit(of(rows(*TOKENS))), atol=1e-6)


def test_prompts(tmp_path: Path) -> None:
    """Prompts of the configuration stand before queries and texts; those of the call go before them."""
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": None}
    path = folder(tmp_path, **{"config_sentence_transformers.json": prompts})
    model = OnnxEmbedder(path)
    assert np.allclose(embed_queries(model, ["red"])[0], expected("[CLS]", "query", ":", "red", "[SEP]"), atol=1e-6)
    assert np.allclose(model.embed(["red"])[0], expected("[CLS]", "passage", ":", "red", "[SEP]"), atol=1e-6)
    other = OnnxEmbedder(path, query_prompt="green ", text_prompt="")
    assert np.allclose(embed_queries(other, ["red"])[0], expected("[CLS]", "green", "red", "[SEP]"), atol=1e-6)
    assert np.allclose(other.embed(["red"])[0], expected("[CLS]", "red", "[SEP]"), atol=1e-6)
    assert other.id != model.id


def test_a_default_prompt_stands_before_all(tmp_path: Path) -> None:
    """Where only a default prompt is named, it stands before queries and texts alike."""
    prompts = {"prompts": {"sts": "blue "}, "default_prompt_name": "sts"}
    model = OnnxEmbedder(folder(tmp_path, **{"config_sentence_transformers.json": prompts}))
    assert np.allclose(model.embed(["red"])[0], expected("[CLS]", "blue", "red", "[SEP]"), atol=1e-6)
    assert np.allclose(model.embed_queries(["red"]), model.embed(["red"]))


def test_how_much_is_read(tmp_path: Path) -> None:
    """The most tokens come from the configuration, not from the tokenizer's file, and an argument goes before it."""
    path = folder(tmp_path)
    twelve = ("[CLS]", *["red"] * 5, *["green"] * 5, "[SEP]")
    text = "red " * 5 + "green " * 5 + "blue " * 9
    assert np.allclose(OnnxEmbedder(path).embed([text])[0], expected(*twelve), atol=1e-6)
    short = OnnxEmbedder(path, max_tokens=4)
    assert np.allclose(short.embed([text])[0], expected("[CLS]", "red", "red", "[SEP]"), atol=1e-6)
    assert short.windows("red green blue red green", overlap=0) == [(0, 9), (10, 18), (19, 24)]
    assert short.id != OnnxEmbedder(path).id


def test_prompts_leave_less_room(tmp_path: Path) -> None:
    """Windows are as many tokens shorter as the prompt of texts has, so that nothing of them is cut off."""
    model = OnnxEmbedder(folder(tmp_path), text_prompt="passage: ")
    text = "red green blue car house red green blue car house red green"
    pieces = [text[begin:end] for begin, end in model.windows(text, overlap=0)]
    assert [len(piece.split()) for piece in pieces] == [8, 4]


def test_lower_case(tmp_path: Path) -> None:
    """A model that was taught lower case gets lower case."""
    settings = {"max_seq_length": 12, "do_lower_case": True}
    model = OnnxEmbedder(folder(tmp_path, **{"sentence_bert_config.json": settings}))
    assert np.allclose(model.embed(["RED"])[0], expected("[CLS]", "red", "[SEP]"), atol=1e-6)


@pytest.mark.parametrize(
    "inputs",
    [
        {"input_ids": TensorProto.INT64},
        {"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64},
        {"input_ids": TensorProto.INT32, "attention_mask": TensorProto.INT32, "position_ids": TensorProto.INT32},
    ],
    ids="-".join,
)
def test_inputs(tmp_path: Path, inputs: dict[str, int]) -> None:
    """A graph gets the inputs it asks for, in the width it asks for."""
    model = OnnxEmbedder(folder(tmp_path, **{"onnx/model.onnx": graph(inputs, STANDARD_OUTPUTS)}))
    assert np.allclose(model.embed([TEXT, "red"])[0], expected(*TOKENS), atol=1e-6)


def test_a_graph_that_pools_itself(tmp_path: Path) -> None:
    """An output `sentence_embedding` is taken as it is, also where modules follow the pooling that could not be run."""
    modules = [{"idx": place, "path": "", "type": f"sentence_transformers.models.{name}"}
               for place, name in enumerate(("Transformer", "Pooling", "Dense", "Normalize"))]  # fmt: skip
    outputs = {"token_embeddings": ["b", "t", DIM], "sentence_embedding": ["b", DIM]}
    whole = folder(tmp_path / "a", **{"onnx/model.onnx": graph(STANDARD_INPUTS, outputs), "modules.json": modules})
    assert np.allclose(OnnxEmbedder(whole).embed(["red"])[0], unit(rows("[CLS]")[0]), atol=1e-6)
    part = folder(tmp_path / "b", **{"modules.json": modules})
    with pytest.raises(InvalidInput, match="Dense"):
        OnnxEmbedder(part).embed(["red"])


def test_a_bare_folder(tmp_path: Path) -> None:
    """`model.onnx` beside `tokenizer.json` and nothing else: the mean of the tokens, as wide as the graph says or gives."""
    bare: dict[str, Any] = {
        "onnx/model.onnx": None, "1_Pooling/config.json": None, "sentence_bert_config.json": None,
    }  # fmt: skip
    for place, width in enumerate((DIM, "d")):
        made = graph(STANDARD_INPUTS, {"last_hidden_state": ["b", "t", width]})
        model = OnnxEmbedder(folder(tmp_path / str(place), **bare, **{"model.onnx": made}))
        assert model.dim == DIM
        assert np.allclose(model.embed([TEXT])[0], expected(*TOKENS), atol=1e-6)


def test_the_id_names_what_changes_vectors(tmp_path: Path) -> None:
    """Another graph, tokenizer, pooling or length is another id; the number of threads and the place are not."""
    usual = OnnxEmbedder(folder(tmp_path / "a" / "toy"))
    same = OnnxEmbedder(folder(tmp_path / "b" / "toy"), threads=3)
    assert usual.id == same.id
    changed: list[dict[str, Any]] = [
        {"onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS, TABLE + 1)},
        {"onnx/model.onnx_data": b"more weights"},
        {"tokenizer.json": models.tokenizer([*WORDS, "sky"])},
        {"1_Pooling/config.json": {"pooling_mode_cls_token": True}},
        {"sentence_bert_config.json": {"max_seq_length": 11}},
    ]
    ids = {OnnxEmbedder(folder(tmp_path / str(place) / "toy", **files)).id for place, files in enumerate(changed)}
    assert len(ids | {usual.id}) == len(changed) + 1


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"onnx/model.onnx": None}, ModelMissing),
        ({"tokenizer.json": None}, ModelMissing),
        ({"onnx/model.onnx": b"no graph"}, ModelDamaged),
        ({"onnx/model.onnx": b""}, ModelDamaged),
        ({"tokenizer.json": b"{"}, ModelDamaged),
        ({"tokenizer.json": {"version": "1.0"}}, ModelDamaged),
        ({"1_Pooling/config.json": b"{"}, ModelDamaged),
        ({"1_Pooling/config.json": b"\xff"}, ModelDamaged),
        ({"1_Pooling/config.json": [1]}, ModelDamaged),
        ({"1_Pooling/config.json": {"pooling_mode_weightedmean_tokens": True}}, InvalidInput),
        ({"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}}, InvalidInput),
        ({"1_Pooling/config.json": {"word_embedding_dimension": DIM + 1}}, ModelDamaged),
        ({"modules.json": {"a": 1}}, ModelDamaged),
        ({"onnx/model.onnx": graph({"pixels": TensorProto.INT64} | STANDARD_INPUTS, STANDARD_OUTPUTS)}, InvalidInput),
        ({"onnx/model.onnx": graph(STANDARD_INPUTS, {"logits": ["b", DIM]})}, InvalidInput),
        ({"onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS, TABLE * np.nan)}, ModelDamaged),
        ({"onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS, TABLE * 0)}, ModelDamaged),
        ({"onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS, TABLE[:5])}, ModelDamaged),
    ],
    ids=lambda given: ascii(given)[:60] if isinstance(given, dict) else given.code,
)  # fmt: skip
def test_what_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], files: dict[str, Any], error: type[AgentMemError]
) -> None:
    """What is missing, damaged or not supported is an error that says what, why and what next, and nothing is printed."""
    path = folder(tmp_path, **files)
    with pytest.raises(error) as raised:
        OnnxEmbedder(path).embed([TEXT])
    assert raised.type is error
    assert raised.value.next
    assert capfd.readouterr() == ("", "")


def test_no_folder(tmp_path: Path) -> None:
    """A path with no folder is named in the error."""
    with pytest.raises(ModelMissing, match="nowhere"):
        OnnxEmbedder(tmp_path / "nowhere")


@pytest.mark.parametrize("arguments", [{"threads": 0}, {"max_tokens": 0}, {"max_tokens": -1}])
def test_arguments(tmp_path: Path, arguments: dict[str, int]) -> None:
    """Threads and tokens are one at least."""
    with pytest.raises(InvalidInput):
        OnnxEmbedder(folder(tmp_path), **arguments)


def test_scripts_are_known_by_the_vocabulary(tmp_path: Path) -> None:
    """A script counts as known where the vocabulary has a hundred parts of words of it or a thousand of its letters."""
    cyrillic = [f"слово{chr(0x430 + place // 10)}{chr(0x430 + place % 10)}" for place in range(120)]
    han = [chr(0x4E00 + place) for place in range(1_200)]
    greek = [chr(0x3B1 + place) for place in range(17)]
    more = models.tokenizer([*WORDS, *cyrillic, *han, *greek])
    table = np.ones((len(WORDS) + 2_000, DIM), np.float32)
    files = {"tokenizer.json": more, "onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS, table)}
    texts = [cyrillic[3], f"{han[5]}{han[900]}", "α", "αβγ", "red"]
    assert OnnxEmbedder(folder(tmp_path / "more", **files)).knows(texts) == [True, True, False, False, True]
    assert OnnxEmbedder(folder(tmp_path / "less")).knows(texts) == [False, False, False, False, True]
