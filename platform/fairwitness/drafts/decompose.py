"""Cuts a draft into labelled steps by rules: sentences, each `backtrack` where it opens with a turn of mind.

Pure and lossless: the steps join to the draft. Quality of the backtrack label on 60 sentences labelled by hand
(tests/golden/test_draft_steps.py): precision 1.0, recall 0.77. For Chinese, Japanese, Russian and Arabic it knows
the most usual openings only, in other languages none. A judge can label instead.

Source: Measuring the Faithfulness of Thinking Drafts in Large Reasoning Models, App. A.2 (there an LLM does it;
self-reflection and another approach both count as backtrack).
"""

from __future__ import annotations

import re

from fairwitness.drafts.blocks import DraftStep, Label
from fairwitness.text.segmentation import segment

_OPENING = re.compile(
    r"""^[\s"'*_>\-–—(.…]*(?:(?:so|and|oh|ah|well|okay|ok|hmm+|um+|yeah|right)\b[\s,.…!]*)*(?:
    (?:but\s+)?(?:wait|hold\s+on|hang\s+on|no[,.!…\s]+(?:wait|that|this|it|the|i)\b|nope)
  | (?:but\s+)?(?:alternatively|on\s+(?:second\s+thought|the\s+other\s+hand)|then\s+again)\b
  | (?:but\s+)?(?:actually|in\s+fact)\b[\s,]
  | (?:but\s+)?(?:maybe|perhaps)\s+i\b
  | (?:but\s+)?(?:let\s+(?:me|us)|let's|i\s+(?:should|need\s+to|want\s+to|must|have\s+to)|i'll|i\s+will)\s+
      (?:also\s+|just\s+|quickly\s+|now\s+)?
      (?:double[\s-]?check|re-?check|check\s+(?:again|that|this|if|whether|my|the)|verify|re-?consider|re-?think|re-?examine
       |re-?read|re-?evaluate|re-?visit|go\s+back|start\s+over|try\s+(?:another|a\s+different|again|an\s+alternative)
       |look\s+at\s+(?:this|it)\s+(?:again|differently|another\s+way)
       |think\s+(?:again|differently|about\s+this\s+differently)|backtrack)
  | (?:i|we)\s+(?:(?:may|might|must)\s+(?:have\s+made|be)|made|was|were|am\s+probably)\s+
      (?:a\s+mistake|an\s+error|wrong|mistaken|confus)
  | (?:that|this|it|which)\s*(?:'s|\s+is|\s+was|\s+can't|\s+cannot|\s+can\s+not|\s+doesn't|\s+does\s+not|\s+isn't)\s+
      (?:not\s+)?(?:right|correct|wrong|a\s+mistake|mistaken|be\s+right|seem\s+right|make\s+sense|add\s+up|match)
  | (?:another|a\s+different|an\s+alternative)\s+(?:way|approach|method|thought|possibility|idea|angle|option)\b
  | what\s+if\b
  | (?:but\s+)?(?:is|am|did|was|are)\s+(?:that|this|i|it|we)\b[^.!]*\?
  | (?:等等|等一下|不对|不\W|或者|另外|重新|再检查|待って|いや[、,])
  | (?:но\s+)?(?:подожди\w*|погоди\w*|постой\w*|стоп|или\s+же|\w\s+другой\s+стороны|проверим|перепровер\w+)\b
  | (?:لكن\s+)?(?:انتظر|مهلا|لحظة|من\s+ناحية\s+أخرى|لنتحقق|دعني\s+أتحقق)\b
  )""",
    re.IGNORECASE | re.VERBOSE,
)


def label_of(sentence: str) -> Label:
    """`backtrack` where the sentence opens by turning back or to another approach, else `continue`."""
    return "backtrack" if _OPENING.match(sentence) else "continue"


def decompose(draft: str) -> list[DraftStep]:
    """The steps of a draft: its sentences, labelled. They tile the draft; an empty draft has none."""
    return [DraftStep(span.start, span.end, label_of(draft[span.start : span.end])) for span in segment(draft)]
