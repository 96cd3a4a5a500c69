"""Models on the terminal and as JSON, with nothing in them that a terminal would obey."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from batchrun.byte_counts import file_size
from batchrun.catalogue.card import Card
from batchrun.catalogue.found import Found
from batchrun.printable import printable
from batchrun.terminal_table import print_table


def list_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    return [asdict(each) | {"path": str(each.path)} for each in found]


def card_json(card: Card) -> dict[str, Any]:
    return asdict(card) | {"path": str(card.path), "bits_per_weight": round(card.bits_per_weight, 2)}


def show_list(found: Sequence[Found]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("--model", overflow="fold")
    for title in ("", "size", "where"):
        table.add_column(title, justify="right" if title == "size" else "left", overflow="fold")
    for each in found:
        table.add_row(*map(_text, (each.name, each.kind, file_size(each.size_bytes), each.place)))
    print_table(table)


def show_card(card: Card) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for title, value in _rows(card):
        table.add_row(title, _text(value))
    print_table(table)


def _rows(card: Card) -> Iterable[tuple[str, str]]:
    template = f"{len(card.template):,} characters; writes a prompt as {card.rendered!r}"
    yield "model", card.model
    yield "file", str(card.path)
    yield "architecture", f"{card.architecture}, {card.parameters / 1e6:,.0f} million parameters, {card.kind}"
    yield "quantisation", f"{card.quantisation}, {card.bits_per_weight:.1f} bits a weight"
    yield "size", file_size(card.size_bytes)
    cache = card.cache_bytes_per_token / 1024
    yield "context", f"{card.context_tokens:,} tokens; the cache takes {cache:.1f} KiB a token in f16"
    yield "vocabulary", f"{card.vocabulary_tokens:,} tokens"
    yield "chat template", template if card.template else "none: prompts are used as plain text"
    yield "licence", card.licence or "not said; see where the model came from"
    yield "stop tokens", " ".join(card.stop_tokens) or "none"


def _text(value: str) -> Text:
    return Text(printable(value))
