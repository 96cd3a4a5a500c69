"""Seeded prose for benchmark documents: distinct, plain, and about as many tokens a word as real reports have."""

from random import Random

NAMES = [
    "Amara",
    "Bjarne",
    "Chiara",
    "Dmitri",
    "Esther",
    "Farid",
    "Greta",
    "Hiroshi",
    "Imani",
    "Jonas",
    "Katya",
    "Luis",
]
PLACES = [
    "the harbour",
    "the north orchard",
    "the old mill",
    "the weather station",
    "the county archive",
    "the ferry dock",
]
THINGS = ["the pump", "the second kiln", "the survey drone", "the cold store", "the grain dryer", "the tide gauge"]
CAUSES = ["a worn seal", "late deliveries", "a week of fog", "a mislabelled drum", "low river levels", "a broken relay"]
ACTIONS = ["replaced", "inspected", "photographed", "recalibrated", "moved under cover", "written off"]
MONTHS = ["January", "March", "April", "June", "August", "October", "November"]

SENTENCES = [
    "On {day} {month}, {name} reported that {thing} at {place} had stopped because of {cause}.",
    "{name} and {other} spent {number} hours at {place} before the fault was found.",
    "The team measured {number}.{digit} litres a minute, against {number2} in the week before.",
    "{thing_up} was {action} on the same afternoon, and {name} signed the log.",
    "A visitor asked why {thing} is kept at {place}; {other} explained that it had been so since {year}.",
    "By the end of {month}, costs stood at {number2}00 crowns, of which {number}0 were for transport.",
    "{other} noted in the margin that {cause} had been seen twice in {year} and once in {year2}.",
    "The committee agreed to have {thing} {action} before winter, if the price stays below {number2}0 crowns.",
    "No one was hurt, but {number} crates had to be {action}.",
    "Readings from {place} came in late for {number} days, which {name} put down to {cause}.",
    "In a letter of {day} {month} {year}, {name} asked for a second opinion on {thing}.",
    "The neighbours near {place} were told in advance; {number} of them came to watch.",
    "Two samples were lost on the way from {place}, so the average rests on {number} values.",
    "{name} thinks that {cause} explains most of it, while {other} points to {thing}.",
    "What remains open is who pays for {thing} after {year2}.",
]


def sentence(random: Random) -> str:
    """One sentence."""
    name, other = random.sample(NAMES, 2)
    thing = random.choice(THINGS)
    return random.choice(SENTENCES).format(
        name=name,
        other=other,
        place=random.choice(PLACES),
        thing=thing,
        thing_up=thing[0].upper() + thing[1:],
        cause=random.choice(CAUSES),
        action=random.choice(ACTIONS),
        month=random.choice(MONTHS),
        day=random.randint(1, 28),
        number=random.randint(2, 9),
        number2=random.randint(11, 98),
        digit=random.randint(0, 9),
        year=random.randint(1961, 1999),
        year2=random.randint(2001, 2024),
    )


def prose(random: Random, words: int) -> str:
    """Paragraphs of at least so many words."""
    paragraphs: list[str] = []
    count = 0
    while count < words:
        paragraph = " ".join(sentence(random) for _ in range(5))
        count += len(paragraph.split())
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)
