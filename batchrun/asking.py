"""How the jobs of a run are put to the model."""

from dataclasses import dataclass

PROMPT_FIRST, DOCUMENT_FIRST = LAYOUTS = ("prompt-first", "document-first")


@dataclass(frozen=True, slots=True)
class Asking:
    """How jobs are put to the model, and what happens at the end of a budget.  Part of every digest.

    `layout`: which part of a job leads, one of LAYOUTS.
    `closes`: an answer with a schema is led to an end inside its budget; `grows`: one that was is asked for again with
    twice the budget; `thinking_tokens`: what a model may think before its answer, where its template knows of thinking.
    """

    layout: str = PROMPT_FIRST
    schema_in_prompt: bool = True
    closes: bool = True
    grows: bool = False
    thinking_tokens: int = 0


AS_USUAL = Asking()
