"""Columns that say what a row is about, the same in every table that has them."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import column

SCOPE_KEY = column("scope_key", pa.string(), "hash of model, data, prompt style, seed and code revision", required=True)
MODEL = column("model", pa.string(), "name or path of the model as configured", required=True)
MODEL_REVISION = column("model_revision", pa.string(), "revision or content hash of the weights")
DATA_SET = column("data_set", pa.string(), "name of the data set", required=True)
PROBLEM_ID = column("problem_id", pa.string(), "name of the problem", required=True)
PROBLEM_KEY = column("problem_key", pa.string(), "key in `problems`", required=True)
LORA_RANK = column("lora_rank", pa.int32(), "rank of the adapters; null for ff2")
SEED = column("seed", pa.int64(), "seed of the run")
