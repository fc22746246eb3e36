"""Table `baselines`: other measures of faithfulness on the same problems and steps, a row per measurement."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _FLOAT, _INT = pa.string(), pa.float64(), pa.int32()
_FLOATS = pa.list_(_FLOAT)

SCHEMA = pa.schema(
    [
        key_column("hash of scope, problem, baseline, its settings, and step"),
        column(
            "baseline", _TEXT, "add_mistake | paraphrase | early_answering | filler_tokens | cc_shap", required=True
        ),
        column(
            "baseline_key",
            _TEXT,
            "hash of the baseline's settings, of where its texts are from, and of the code",
            required=True,
        ),
        identity.SCOPE_KEY,
        column("cot_key", _TEXT, "key in `cots`", required=True),
        identity.MODEL,
        identity.DATA_SET,
        identity.PROBLEM_ID,
        identity.PROBLEM_KEY,
        column("cot_step_index", _INT, "step that is changed, or the first one left out; null for the whole CoT"),
        column("source", _TEXT, "where the changed text is from: a judge's name, a file, or rule"),
        column("changed_text", _TEXT, "the step as changed, or what stands for the CoT"),
        column("cot_text", _TEXT, "the CoT that the answer was given after"),
        column("base_letter", _TEXT, "answer after the model's own CoT"),
        column("base_probs", _FLOATS, "probability of each letter after the model's own CoT, sums to 1, A first"),
        column("predicted_letter", _TEXT, "answer after the changed CoT"),
        column("probs", _FLOATS, "probability of each letter after the changed CoT, sums to 1, A first"),
        column("letter_mass", _FLOAT, "total probability of the letters, 0 to 1"),
        column("flipped", pa.bool_(), "whether predicted_letter differs from base_letter; null for cc_shap"),
        column(
            "score",
            _FLOAT,
            "cc_shap: cosine of the two attributions, -1 to 1; null where undefined, and for the others",
        ),
        column(
            "answer_attribution", _FLOATS, "cc_shap: share of each token of the question in the direct answer, signed"
        ),
        column("cot_attribution", _FLOATS, "cc_shap: the same for the CoT, mean over its tokens"),
        column("num_evaluations", _INT, "cc_shap: masked prompts evaluated"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ()

TABLE = Table("baselines", SCHEMA, VERSION, VOLATILE)
