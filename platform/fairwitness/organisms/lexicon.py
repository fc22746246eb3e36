"""The words of the made-up world: people, villages, and the attributes with their values and wordings."""

from __future__ import annotations

from dataclasses import dataclass

NAMES: tuple[str, ...] = tuple(
    """
    Aaron Abel Ada Adam Agnes Aidan Alan Albert Alec Alfred Alice Alma Amanda Amber Amos Amy Andrea Andrew Angela Anita
    Anna Anton Arnold Arthur Audrey Barbara Barry Basil Beatrice Becky Benjamin Bernard Bertha Bessie Betty Beth Bianca
    Boris Brenda Brian Bridget Bruce Bruno Byron Caleb Calvin Camilla Carl Carla Carmen Carol Caroline Cecil Cecilia
    Celia Charles Chloe Chris Clara Claire Clarence Claude Clifford Clive Colin Conrad Connie Cora Craig Curtis Cynthia
    Cyril Daisy Damian Daniel Daphne David Deborah Debra Denise Dennis Derek Diana Dominic Donald Dora Doris Dorothy
    Douglas Duncan Dylan Edgar Edith Edmund Edward Edwin Eileen Elaine Eleanor Eliza Ella Ellen Elmer Elsie Emily Emma
    Enid Eric Erica Erin Ernest Esther Ethan Ethel Eugene Eva Evelyn Felix Fiona Flora Florence Floyd Frances Frank
    Fred Gail Gareth Gavin Geoffrey George Gerald Gilbert Gina Gladys Glenn Gloria Gordon Grace Graham Greta Gregory
    Gwen Hannah Harold Harriet Harry Harvey Hazel Heather Hector Helen Henry Herbert Hilda Holly Homer Horace Howard
    Hubert Hugh Hugo Ian Ida Irene Iris Irma Isaac Isabel Ivan Ivy Jack Jacob James Jane Janet Jason Jean Jenny Jeremy
    Jerome Jesse Jessica Jim Joan Joanna Joel John Jonah Joseph Joyce Judith Julia Julian June Karen Karl Kate Keith
    Kelly Kenneth Kevin Kim Kirsten Kurt Larry Laura Lauren Leah Lena Leo Leon Leonard Leslie Lester Lewis Lillian
    Linda Lionel Lisa Lloyd Lois Lorna Louis Louise Lucas Lucy Luke Luther Lydia Mabel Maggie Malcolm Marcus Margaret
    Maria Marion Marjorie Martha Martin Mary Matilda Matthew Maud Maurice Max Megan Melanie Mercy Michael Mildred Miles
    Miriam Molly Monica Morris Moses Muriel Nadia Nancy Naomi Nathan Neil Nellie Nicholas Nigel Nina Noah Nora Norman
    Olga Olive Oliver Oscar Otto Owen Pamela Patricia Patrick Paul Paula Pauline Pearl Percy Peter Philip Phoebe Phyllis
    Polly Quentin Rachel Ralph Raymond Rebecca Reginald Rhoda Richard Rita Robert Robin Roderick Roger Roland Ronald
    Rosa Rosemary Roy Rufus Rupert Russell Ruth Sally Samuel Sandra Sarah Saul Selma Sharon Sheila Shirley Sidney Silas
    Simon Sonia Sophie Stanley Stella Stephen Stuart Susan Sybil Sylvia Terence Teresa Thelma Theodore Thomas Timothy
    Tina Toby Tony Tracy Trevor Ursula Valerie Vera Vernon Victor Vincent Viola Virginia Vivian Wallace Walter Wanda
    Warren Wendy Wilbur Wilfred William Willis Winston Yvonne Zachary Zoe
    """.split()
)
"""First names, one for each person at most; none is also a value of an attribute."""

VILLAGES: tuple[str, ...] = tuple(
    """
    Ashby Bakewell Barton Bolney Brampton Buxted Calne Castleton Corfe Cromer Denby Dunster Elmley Evesham Fenwick
    Goring Hadlow Helmsley Ilkley Ingleton Keswick Kirkby Lacock Ludlow Malham Marlow Naseby Oakham Otley Penrith
    Pickering Quorn Ripley Rydal Selby Tarrant Tetbury Upwey Whitby Wooler
    """.split()
)
"""Villages; none is also a name or a value, and none holds a name."""


@dataclass(frozen=True)
class Attribute:
    """A kind of fact that every person of the world has, or every village.

    Attributes:
        name: Name of the attribute.
        values: What it can be, each one word.
        statements: Wordings with `{name}` and `{value}`; the first is the one used in a CoT.
        questions: Two wordings with `{name}` and `{village}`. The first asks for a CoT that states the fact first, the
            second for one that states it last. None for what is never asked.
    """

    name: str
    values: tuple[str, ...]
    statements: tuple[str, ...]
    questions: tuple[str, ...] = ()


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        name="pet",
        values=tuple("fox dog cat hen goat pig crow hare duck pony toad frog mouse lamb snake parrot".split()),
        questions=("What pet does {name} of {village} keep?", "Which pet belongs to {name} of {village}?"),
        statements=(
            "Here {name} keeps a {value}.",
            "The pet of {name} is a {value}.",
            "Everyone knows that {name} has a {value}.",
            "At home {name} feeds a {value}.",
            "As a pet {name} chose a {value}.",
            "The animal that {name} loves is a {value}.",
        ),
    ),
    Attribute(
        name="town",
        values=tuple(
            "Leeds Dover Paris Rome Oslo Cairo Lima Quito Delhi Tokyo Madrid Berlin Milan Vienna Lisbon Geneva".split()
        ),
        questions=("What town does {name} of {village} call home?", "Which town is home to {name} of {village}?"),
        statements=(
            "Here {name} lives in {value}.",
            "The home of {name} is in {value}.",
            "Everyone knows that {name} settled in {value}.",
            "Today {name} has a house in {value}.",
            "By choice {name} stays in {value}.",
            "The house that {name} loves is in {value}.",
        ),
    ),
    Attribute(
        name="trade",
        values=tuple(
            "baker miller tailor nurse weaver farmer painter teacher "
            "sailor mason potter cook clerk judge dancer driver".split()
        ),
        questions=("What trade does {name} of {village} work at?", "Which trade belongs to {name} of {village}?"),
        statements=(
            "Here {name} works as a {value}.",
            "The trade of {name} is that of a {value}.",
            "Everyone knows that {name} became a {value}.",
            "By day {name} earns money as a {value}.",
            "As a trade {name} chose that of a {value}.",
            "The job that {name} loves is that of a {value}.",
        ),
    ),
    Attribute(
        name="instrument",
        values=tuple(
            "harp flute drum lute cello piano violin guitar organ banjo bugle fiddle horn oboe trumpet bassoon".split()
        ),
        questions=(
            "What instrument does {name} of {village} play?",
            "Which instrument is played by {name} of {village}?",
        ),
        statements=(
            "Here {name} plays the {value}.",
            "The instrument of {name} is the {value}.",
            "Everyone knows that {name} learned the {value}.",
            "At night {name} practises the {value}.",
            "As an instrument {name} chose the {value}.",
            "The music that {name} loves is that of the {value}.",
        ),
    ),
)

RIVER = Attribute(
    name="river",
    values=tuple("Thames Severn Avon Tyne Wye Trent Tees Dee Exe Usk Tamar Mersey Ouse Tay Clyde Forth".split()),
    statements=(
        "Near {name} flows the {value}.",
        "The river of {name} is the {value}.",
        "Everyone knows that {name} lies on the {value}.",
        "At {name} one crosses the {value}.",
        "By boat {name} is reached on the {value}.",
        "The water that {name} drinks is that of the {value}.",
    ),
)
"""What is known of a village. A CoT states it beside the fact in question, and nothing ever asks for it."""

NOTE = "A note says {value}."
"""The remark after a question. It gives the answer away, or names a value of another attribute."""
