"""Small models as folders of sentence-transformers with an ONNX export, made by the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "query",
    "passage",
    ":",
    "red",
    "green",
    "blue",
    "car",
    "##s",
    "house",
    ".",
]
DIM = 6
TABLE = np.random.default_rng(7).normal(size=(len(WORDS), DIM)).astype(np.float32)


def tokenizer(words: list[str] = WORDS) -> dict[str, Any]:
    """Pieces of words between `[CLS]` and `[SEP]`; the file asks for eight tokens, which an embedder has to put aside."""
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [
            {"id": words.index(name), "special": True, "content": name, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
            for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": False},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": {name: {"id": name, "ids": [words.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {word: place for place, word in enumerate(words)}},
    }  # fmt: skip


def graph(inputs: dict[str, int], outputs: dict[str, list[str | int]], table: np.ndarray = TABLE) -> bytes:
    """A row of the table for each token; outputs of rank 2 are the row of the first token."""
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows"])]
    made = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array(0, np.int64), "zero")]
    for name, shape in outputs.items():
        whole = len(shape) == 3
        nodes.append(helper.make_node("Identity" if whole else "Gather", ["rows"] if whole else ["rows", "zero"], [name],
                                      **({} if whole else {"axis": 1})))  # fmt: skip
    model = helper.make_model(
        helper.make_graph(
            nodes, "toy",
            [helper.make_tensor_value_info(name, kind, ["b", "t"]) for name, kind in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            made,
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    return bytes(model.SerializeToString())


STANDARD_INPUTS = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), TensorProto.INT64)
STANDARD_OUTPUTS: dict[str, list[str | int]] = {"last_hidden_state": ["b", "t", DIM]}


def folder(path: Path, **files: Any) -> Path:
    """A model's folder. `files` go over or beside the usual ones, by path; None leaves one out."""
    written: dict[str, Any] = {
        "onnx/model.onnx": graph(STANDARD_INPUTS, STANDARD_OUTPUTS),
        "tokenizer.json": tokenizer(),
        "1_Pooling/config.json": {"word_embedding_dimension": DIM, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
    } | files
    for name, content in written.items():
        if content is not None:
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def expected(*words: str) -> np.ndarray:
    """The mean of the rows of these tokens, of length 1."""
    mean = TABLE[[WORDS.index(word) for word in words]].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))
