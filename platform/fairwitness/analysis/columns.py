"""The data dictionary of the frames: each column in one line, with units. Stored columns are as their table says."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairwitness.stats.bootstrap import Estimate
from fairwitness_schemas import TABLES
from fairwitness_schemas.table import DESCRIPTION

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "efficacy": "share of its probability that the unlearned step loses, at most 1, mean over iterations and steps",
        "specificity": "share of held-out answers that stay, 0 to 1, mean over iterations and steps",
        "ff_hard_any": "share of problems where unlearning a step changes the answer at any iteration, 0 to 1",
        "ff_hard_final": "share of problems where unlearning a step changes the answer at the last iteration, 0 to 1",
        "step_flip_any": "share of steps whose unlearning changes the answer at any iteration, 0 to 1",
        "step_flip_final": "share of steps whose unlearning changes the answer at the last iteration, 0 to 1",
        "ff_soft_final": "probability taken from the base answer at the last iteration, -1 to 1, mean over steps",
        "ff_soft_mean": "probability taken from the base answer, -1 to 1, mean over iterations and steps",
        "ff_soft_max": "largest probability of all iterations taken from the base answer, -1 to 1, mean over steps",
    }
)
"""What a cell shows, over problems whose direct and CoT answers agree."""

CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "before": "accuracy of the base model, 0 to 1",
        "after": "accuracy after unlearning a step, 0 to 1, mean over steps",
        "change": "after minus before, -1 to 1, mean over steps",
        "changed": "share of answers that differ between the two, 0 to 1, mean over steps",
    }
)
"""What a cell shows of general capability."""


def estimate_columns(name: str, estimate: Estimate) -> dict[str, Any]:
    """The columns of one estimate: value, interval, what it was divided from, problems, how and why not."""
    values = (estimate.value, estimate.low, estimate.high, estimate.numerator, estimate.denominator)
    rest = (estimate.num_clusters, estimate.interval, estimate.reason)
    return {f"{name}{suffix}": value for suffix, value in zip(_ESTIMATE, (*values, *rest), strict=True)}


_ESTIMATE = {
    "": "{}",
    "_low": "lower end of the 95% interval of {}",
    "_high": "upper end of the 95% interval of {}",
    "_numerator": "sum behind {}",
    "_denominator": "what that sum is divided by to get {}",
    "_num_problems": "problems (or what else its interval resamples) behind {}",
    "_interval": "bootstrap | wilson | newcombe: how the interval of {} was made",
    "_reason": "why {} or its interval is missing",
}


def _estimates(measures: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{name}{suffix}": form.format(name if suffix else text)
        for name, text in measures.items()
        for suffix, form in _ESTIMATE.items()
    }


def _stored(table: str, *names: str) -> dict[str, str]:
    """Columns of a stored table; all of them where none is named."""
    schema = TABLES[table].schema
    return {name: schema.field(name).metadata[DESCRIPTION].decode() for name in names or schema.names}


_PANEL = _stored("unlearning", "model", "model_revision", "data_set", "method", "lora_rank", "scope_key")
_CELL = _stored("unlearning", "model", "data_set", "method", "lora_rank", "lr")
_COUNTS = {
    "num_tasks_ok": "tasks measured, of all problems; a task is one step of one problem at one rate",
    "num_tasks_skipped": "tasks skipped with a reason, of all problems",
    "num_tasks_failed": "tasks failed with a reason, of all problems",
    "num_problems": "problems that have a task",
    "num_problems_counted": "problems in the denominator of ff-hard",
}
_FLIPS = {
    "flipped_any": "whether the answer is changed at any iteration",
    "flipped_final": "whether the answer is changed at the last iteration",
    "ff_soft_final": "probability taken from the base answer at the last iteration, -1 to 1",
    "ff_soft_mean": "the same, mean over iterations",
    "ff_soft_max": "the same, largest over iterations",
    "efficacy": "(p0 - p)/p0 with p the probability of the step's tokens, at most 1, mean over iterations",
    "specificity": "share of held-out answers that stay, 0 to 1, mean over iterations",
    "letter_mass": "total probability of the letters, 0 to 1, smallest over iterations",
}
_HEALTH = {
    "agreement": "share of CoTs whose answer is the direct answer, 0 to 1",
    "direct_accuracy": "share of right direct answers, where the right one is known, 0 to 1",
    "cot_accuracy": "share of right answers after the CoT, 0 to 1",
    "eligible_steps": "share of steps with enough content words to be unlearned, 0 to 1",
    "eligible_tokens": "share of CoT tokens that are content tokens of such steps, 0 to 1",
    "cut_at_length": "share of CoTs that reached the limit of length, 0 to 1",
    "steps_per_cot": "mean number of steps of a CoT",
}
_SPREADS = {
    "direct_letter_mass": "total probability of the letters without a CoT, 0 to 1",
    "cot_letter_mass": "total probability of the letters after the CoT, 0 to 1",
    "unlearned_letter_mass": "total probability of the letters after unlearning, smallest of each task's iterations",
}
_BASELINE_FIGURES = {
    "changed": "share of problems where some change of the CoT changes the answer, 0 to 1; not for CC-SHAP",
    "ff_hard": "ff-hard at any iteration on the same problems, 0 to 1",
    "same": "share of problems where unlearning and the baseline both change the answer or neither does, 0 to 1",
    "changed_rows": "share of single changes that change the answer, 0 to 1; not for CC-SHAP",
    "score": "mean CC-SHAP, -1 to 1; not for the others",
    "score_undefined": "share of problems whose CC-SHAP is undefined, 0 to 1; not for the others",
}
_ITEMS = {
    "num_ok": "rows that are ok, of all problems",
    "num_skipped": "rows that are skipped",
    "num_failed": "rows that failed",
}
_RATE = {
    "value": "the rate, 0 to 1; for answer_tokens the mean number of tokens",
    "low": "lower end of its 95% interval",
    "high": "upper end of its 95% interval",
    "interval": "bootstrap | wilson | newcombe: how the interval was made",
    "n": "continuations with a verdict (pairs of answers for reliance)",
    "num_all": "continuations of the group, those without a verdict too",
    "num_undefined": "continuations without a verdict",
    "num_truncated": "continuations that reached their limit",
    "num_problems": "problems behind the value",
    "reason": "why the value or its interval is missing",
}


def _correlation(name: str) -> dict[str, str]:
    return {
        name: f"{name.capitalize()}'s correlation of rating and ff-soft over steps, -1 to 1",
        f"{name}_low": "lower end of its 95% interval",
        f"{name}_high": "upper end of its 95% interval",
        f"{name}_p_value": "its two-sided p value",
        f"{name}_num_steps": "steps behind it",
        f"{name}_reason": "why it or its interval is missing",
    }


def _method(place: str) -> dict[str, str]:
    return {
        f"{place}_method": f"ff2 | lora: method of the {place} panel",
        f"{place}_lora_rank": f"rank of the {place} panel's adapters; missing for ff2",
        f"{place}_lr": f"learning rate chosen for the {place} panel",
        f"{place}_cell_key": f"key of the {place} panel's chosen cell",
    }


COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **_PANEL,
        "num_problems": "problems that have a CoT",
        "num_rates": "learning rates measured",
        "chosen_lr": "learning rate that the rule selects",
        "nearest_miss_lr": "where it selects none, the rate of highest specificity",
        "measures_at": "chosen rate | nearest miss: the rate of the measures that follow",
        "no_rate_reason": "why no rate is selected",
        **_estimates(MEASURES),
        **_estimates(_HEALTH),
        "chance": "share that guessing gets right, 0 to 1",
        **{f"{name}_min": f"{text}: the smallest" for name, text in _SPREADS.items()},
        **{f"{name}_median": f"{text}: the median" for name, text in _SPREADS.items()},
        "num_counted": "problems in the denominator of ff-hard",
    },
    "rates": {
        **_PANEL,
        **_stored("unlearning", "cell_key", "lr"),
        "chosen": "whether the learning-rate rule selects the rate",
        **_estimates(MEASURES),
        **_COUNTS,
    },
    "steps": {
        **_PANEL,
        **_stored("unlearning", "cell_key", "lr", "problem_id", "problem_key", "cot_step_index", "status", "reason"),
        "num_iterations": "updates measured",
        "base_letter": "direct answer of the base model",
        "predicted_letter": "direct answer after the last iteration",
        **_FLIPS,
        "text": "text of the step",
    },
    "problems": {
        **_PANEL,
        **_stored("cots", "problem_key", "problem_id", "direct_letter", "cot_letter", "direct_letter_mass"),
        **_stored("cots", "cot_letter_mass", "agree"),
        "cot_status": "ok | skipped | failed: status of the CoT",
        "cot_reason": "why the CoT is not ok",
        **_stored("unlearning", "cell_key", "lr"),
        "num_steps_ok": "steps measured",
        "num_steps_skipped": "steps skipped with a reason",
        "num_steps_failed": "steps failed with a reason",
        "ff_hard_any": "whether unlearning some step changes the answer at any iteration",
        "ff_hard_final": "whether unlearning some step changes the answer at the last iteration",
        "ff_soft_max": "largest probability that a step takes from the base answer at the last iteration, -1 to 1",
        "top_cot_step_index": "position of that step in the CoT, from 0",
        "counted": "whether the problem is in the denominator of ff-hard",
        "reason": "why it is not",
        **_stored("problems", "gold"),
        "truth_faithful": "where the problem's metadata say it: whether the direct answer uses the stated reasoning",
    },
    "cots": {
        **_stored("cots", "model", "model_revision", "data_set", "scope_key", "key", "problem_key", "problem_id"),
        **_stored("problems", "question", "gold"),
        **_stored("cots", "prompt_style", "cot_text", "num_cot_steps", "finish", "direct_letter", "direct_probs"),
        **_stored("cots", "direct_letter_mass", "cot_letter", "cot_letter_mass", "agree", "status", "reason"),
    },
    "skipped_failed": {
        "table": "the table that the item is from",
        "status": "refused | skipped | failed",
        **_stored("unlearning", "reason", "model", "data_set", "problem_id", "cot_step_index", "method", "lora_rank"),
        **_stored("unlearning", "lr"),
        "source": "where a record came from; for a baseline its name and where its text is from",
        "key": "the item's key in its table",
    },
    "overlap": {
        **_stored("unlearning", "model", "data_set", "scope_key"),
        **_method("first"),
        **_method("second"),
        "flip_at": "any | final: the iterations whose changes count",
        "reason": "why there is no overlap",
        "num_problems": "problems that count under both methods",
        "num_both": "problems whose answer both change",
        "num_first_only": "problems whose answer the first alone changes",
        "num_second_only": "problems whose answer the second alone changes",
        "num_neither": "problems whose answer none changes",
        "num_left_out": "problems that count under one method only",
        **_estimates(
            {
                "jaccard": "num_both out of the problems that at least one changes, 0 to 1",
                "same": "share of problems with the same verdict under both, 0 to 1",
            }
        ),
    },
    "baselines": {
        **_stored("unlearning", "model", "data_set", "method"),
        "lr": "learning rate of the cell that ff-hard is of",
        "lr_is_chosen": "whether the rule selects it",
        **_stored("baselines", "baseline"),
        "settings": "the baseline's settings",
        "sources": "where its texts are from",
        "reading": "what it says of a CoT",
        **_estimates(_BASELINE_FIGURES),
        "pearson": "Pearson's correlation of ff-hard with the baseline's change (0, 1) or score over problems, -1 to 1",
        "pearson_low": "lower end of its 95% interval",
        "pearson_high": "upper end of its 95% interval",
        "pearson_p": "its two-sided p value",
        "pearson_num_problems": "problems behind it",
        "pearson_reason": "why it or its interval is missing",
        **_ITEMS,
        "num_problems": "problems that have a row",
        "excluded_json": "JSON object: reason to number of problems that do not count",
        **_stored("baselines", "baseline_key"),
    },
    "capability": {
        **_CELL,
        **_stored("capability", "capability_set", "scope_key", "cell_key"),
        "num_cots": "CoTs whose steps were unlearned",
        "num_steps": "steps unlearned",
        "num_failed": "steps that failed",
        "num_questions": "questions asked",
        "num_questions_left_out": "questions that are not asked, for a reason",
        "worst_change": "the most negative change by a single step, -1 to 1",
        **_estimates(CAPABILITIES),
    },
    "judgements": {
        **_CELL,
        **_stored("judgements", "cell_key", "judge", "judge_key"),
        "num_judged": "steps with a verdict",
        "num_skipped": "steps that were not judged",
        "num_failed": "steps without a verdict",
        "num_unparsable": "steps without a verdict although there is a reply",
        "num_same": "verdicts `same`: both CoTs argue for one answer",
        "num_different": "verdicts `different`",
        "num_unclear": "verdicts `unclear`",
        **_estimates(
            {
                "different": "share of `different` among all verdicts, 0 to 1",
                "different_changed": "the same among steps whose unlearning changed the direct answer, 0 to 1",
            }
        ),
        "num_prompt_tokens": "tokens sent; missing where they were not counted",
        "num_completion_tokens": "tokens received; missing where they were not counted",
        "num_from_cache": "replies that needed no request",
        "cost": "price of the other replies, in the currency of the configured prices",
        "reasons": "why steps have no verdict, with numbers",
    },
    "step_study": {
        "model": "name of the model; missing in the row of all together",
        "data_set": "name of the data set; missing in the row of all together",
        "num_raters": "people who rated",
        "num_ratings": "ratings",
        "num_steps": "rated steps with an ff-soft; a step counts once, by the mean of its ratings",
        "num_undefined": "rated steps without ff-soft, which are in no figure",
        **_correlation("pearson"),
        **_correlation("spearman"),
        **_estimates(
            {
                f"mean_{name}": f"mean rating of steps with {text}, 1 to 5"
                for name, text in (
                    ("negative", "ff-soft at most -0.25"),
                    ("neutral", "ff-soft between -0.25 and 0.25"),
                    ("moderate", "ff-soft from 0.25 to below 0.5"),
                    ("high", "ff-soft of 0.5 or more"),
                )
            }
        ),
    },
    "ratings": _stored("ratings"),
    "trials": _stored("trials"),
    "drafts": {
        **_stored("drafts", "key", "scope_key", "problem_key", "problem_id", "data_set", "model", "source"),
        **_stored("drafts", "prompt_style", "draft_text", "finish", "irregular", "answer_text", "answer_letter"),
        **_stored("drafts", "conclusion_letter", "conclusion_by", "num_cot_steps", "num_blocks", "status", "reason"),
    },
    "continuations": {
        **{name: text for name, text in _stored("continuations").items() if name != "continuation_ids"},
        "outcome": "faithful | unfaithful, or why there is no verdict: undefined | truncated | skipped | failed",
    },
    "draft_rates": {
        "measure": "intra (faithful within the draft) | corrects (corrections among known behaviours) | reliance (same "
        "answer with and without an explanation) | consistency (answer follows the draft) | answer_tokens",
        **_stored("continuations", "model", "data_set", "source"),
        "intervention": "its name; average: mean of the table's columns; missing: the paper's interventions together",
        **_stored("continuations", "insertion_type", "position", "behaviour", "answering"),
        **_RATE,
    },
    "runs": _stored("runs"),
}
"""Frame → column → what it means, in the order of the columns."""
