"""Tables of what follows on a finished run: other measures, judges' verdicts, people's ratings."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import (
    BOOL,
    DATA_SET,
    FLOAT,
    INT,
    MODEL,
    PROBLEM_ID,
    PROBLEM_KEY,
    SCOPE_KEY,
    TEXT,
    Table,
    column,
    key_column,
    status_columns,
)

BASELINES = Table(
    "baselines",
    pa.schema(
        [
            key_column("hash of scope, problem, baseline, its settings, and step"),
            column(
                "baseline", TEXT, "add_mistake | paraphrase | early_answering | filler_tokens | cc_shap", required=True
            ),
            column(
                "baseline_key",
                TEXT,
                "hash of the baseline's settings, of where its texts are from, and of the code",
                required=True,
            ),
            SCOPE_KEY,
            column("cot_key", TEXT, "key in `cots`", required=True),
            MODEL,
            DATA_SET,
            PROBLEM_ID,
            PROBLEM_KEY,
            column("cot_step_index", INT, "step that is changed, or the first one left out; null for the whole CoT"),
            column("source", TEXT, "where the changed text is from: a judge's name, a file, or rule"),
            column("changed_text", TEXT, "the step as changed, or what stands for the CoT"),
            column("cot_text", TEXT, "the CoT that the answer was given after"),
            column("base_letter", TEXT, "answer after the model's own CoT"),
            column(
                "base_probs",
                pa.list_(FLOAT),
                "probability of each letter after the model's own CoT, sums to 1, A first",
            ),
            column("predicted_letter", TEXT, "answer after the changed CoT"),
            column("probs", pa.list_(FLOAT), "probability of each letter after the changed CoT, sums to 1, A first"),
            column("letter_mass", FLOAT, "total probability of the letters, 0 to 1"),
            column("flipped", BOOL, "whether predicted_letter differs from base_letter; null for cc_shap"),
            column(
                "score",
                FLOAT,
                "cc_shap: cosine of the two attributions, -1 to 1; null where undefined, and for the others",
            ),
            column(
                "answer_attribution",
                pa.list_(FLOAT),
                "cc_shap: share of each token of the question in the direct answer, signed",
            ),
            column("cot_attribution", pa.list_(FLOAT), "cc_shap: the same for the CoT, mean over its tokens"),
            column("num_evaluations", INT, "cc_shap: masked prompts evaluated"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=(),
)
"""other measures of faithfulness on the same problems and steps, a row per measurement."""


JUDGEMENTS = Table(
    "judgements",
    pa.schema(
        [
            key_column("hash of item_key, kind and judge_key"),
            column("item_key", TEXT, "what is judged: a task_key of `unlearning` for kind cot_after", required=True),
            column("kind", TEXT, "which question is asked, for example cot_after", required=True),
            SCOPE_KEY,
            column("cell_key", TEXT, "the task's cell; null where there is none"),
            column("model", TEXT, "name or path of the judged model as configured", required=True),
            DATA_SET,
            PROBLEM_ID,
            column("cot_step_index", INT, "position of the step in its CoT, from 0; null when there is none"),
            column("judge", TEXT, "name of the judge", required=True),
            column("judge_key", TEXT, "hash of the judge's model, settings, question template and code", required=True),
            column("verdict", TEXT, "one of the question's verdicts; null when there is none"),
            column("reply", TEXT, "the judge's reply, whole"),
            column("num_prompt_tokens", INT, "tokens sent; null when the judge does not count them"),
            column("num_completion_tokens", INT, "tokens received; null when the judge does not count them"),
            column("cost", FLOAT, "price of the reply in the currency of the configured prices; 0 from the cache"),
            column("from_cache", BOOL, "whether the reply came from the cache"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=("cost", "from_cache"),
)
"""a row per item and judge."""


RATINGS = Table(
    "ratings",
    pa.schema(
        [
            key_column("hash of item_key and rater"),
            column("item_key", TEXT, "name of the rated step as the raters saw it", required=True),
            column("scope_key", TEXT, "hash of model, data, prompt style, seed and code revision"),
            column("cell_key", TEXT, "the cell that ff_soft is from"),
            MODEL,
            DATA_SET,
            PROBLEM_ID,
            column("cot_step_index", INT, "position of the step in its CoT, from 0", required=True),
            column("ff_soft", FLOAT, "probability that unlearning the step took from the answer, -1 to 1"),
            column("bin", TEXT, "negative | neutral | moderate | high"),
            column("rater", TEXT, "who rated", required=True),
            column("rating", INT, "1 (not at all) to 5 (fully); null where the rater gave none"),
            column("source", TEXT, "file that the rating is from"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=("source",),
)
"""how well a step supports its answer, as people rated it, beside its ff-soft."""
