"""Invented names of people, places, companies, streets, products and books, from syllables and lists."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .forms import is_held_out

_GIVEN = (
    "Anna Maria Peter Paul Laura David Emma Thomas Julia Martin Sarah Daniel Lisa Simon Clara Oscar Nina Victor Alice Hugo "
    "Ella Jonas Mary John James Linda Robert Susan Michael Karen Omar Leila Yusuf Amina Chen Mei Raj Priya Ivan Olga Kofi "
    "Ama Diego Lucia Marco Elena Pierre Chloe Lars Ingrid Tom Ben Max Zoe Ruth Adam Eve Noah Leo Mia"
).split()
_STARTS = "b c d f g h j k l m n p r s t v w z br cr dr fl fr gr kl kr pl pr sh sk st str th tr ch ph qu".split()
_ONSETS = "b c d f g k l m n p r s t v w l n r m d t".split()
_VOWELS = "a e i o u a e i o u a e i o u ai ea ie oa oo ou".split()
_CODAS = ["", "", "", "", "", *"l n r s t m k d nd rt ll nn ss st ck ng".split()]
_ENDS = "a o en an in er is us ek ov ine elle ard ott ric well sen dal holm quist ley mann strom berg ini iak".split()
_TOWNS = (
    "burg ford haven mouth stad ton ville bridge field port dale wick by minster fell gate hurst mere stead vik".split()
)
_FIRMS = (
    "Ltd,Works,Logistics,Studio,Brothers,Partners,Foods,Motors,Systems,Trading,Supplies,Interiors,Books,Garden Centre,"
    "Tools,Textiles,Labs,Outdoor,Electric,Bakery,Shipping,Consulting,Design,Energy,Media,Pharma,Records,Robotics"
).split(",")
_STREETS = "Street,Lane,Road,Avenue,Square,Hill,Row,Way,Court,Terrace,Walk,Gardens".split(",")
ADJECTIVES = (
    "copper wooden blue small large red green grey folding electric cordless silent heavy light round square narrow wide "
    "striped woollen cotton leather steel glass ceramic plastic bamboo paper rubber velvet silver golden white black brown "
    "yellow orange purple pink portable foldable padded waterproof solar wireless digital antique vintage modern handmade "
    "painted polished quilted insulated adjustable magnetic reusable travel garden kitchen office winter summer camping"
).split()
NOUNS = (
    "kettle lamp chair table desk mirror blanket jacket coat scarf bicycle helmet tent backpack suitcase notebook pen "
    "clock watch radio speaker camera tripod keyboard monitor printer scanner charger battery torch ladder hammer drill "
    "saw wrench bucket broom vase bowl plate mug teapot pan oven grill toaster blender mixer fridge freezer heater fan "
    "pillow mattress curtain carpet sofa shelf cabinet drawer basket umbrella wallet purse belt boot sandal glove hat "
    "guitar violin drum flute piano puzzle kite ball racket skateboard sledge canoe rope anchor lantern candle whistle"
).split()
_THINGS = (
    "river,garden,winter,lighthouse,stranger,orchard,mountain,letter,island,clockmaker,forest,harbour,shadow,bridge,"
    "daughter,mirror,storm,summer,city,voyage,promise,silence,window,train,kingdom,secret,fox,sparrow,railway,road"
).split(",")
_TONES = "last,silent,golden,forgotten,distant,broken,hidden,quiet,burning,empty,northern,long,second,endless".split(
    ","
)


def person(random: Random) -> str:
    """A first name and a surname, such as Brela Stonkard."""
    return f"{random.choice(_GIVEN) if random.random() < 0.3 else _word(random)} {_word(random)}"


def city(random: Random) -> str:
    """A town."""
    return _stem(random) + random.choice(_TOWNS)


def company(random: Random) -> str:
    """A firm."""
    return f"{_word(random)} {random.choice(_FIRMS)}"


def street(random: Random) -> str:
    """A house in a street."""
    return f"{random.randrange(1, 200)} {_word(random)} {random.choice(_STREETS)}"


def product(random: Random) -> str:
    """What can be bought, described by a word or two or by an invented brand."""
    kind = random.random()
    if kind < 0.25:
        return f"{_word(random)} {random.choice(NOUNS)}"
    if kind < 0.4:
        return f"{random.choice(ADJECTIVES)} {random.choice(ADJECTIVES)} {random.choice(NOUNS)}"
    return f"{random.choice(ADJECTIVES)} {random.choice(NOUNS)}"


def title(random: Random) -> str:
    """The title of a book or a piece of music."""
    kind = random.random()
    thing = random.choice(_THINGS).title()
    if kind < 0.4:
        return f"The {random.choice(_TONES).title()} {thing}"
    if kind < 0.7:
        return f"{thing} of {_word(random)}"
    return f"The {thing} and the {random.choice(_THINGS).title()}"


def code(random: Random) -> str:
    """A number of an order, a shipment or a case, such as KX-4821."""
    letters = "".join(random.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(random.randrange(1, 4)))
    return f"{letters}-{random.randrange(10, 99999)}"


def team(random: Random) -> str:
    """A sports club."""
    return f"{city(random)} {random.choice('United Rovers City Wanderers Athletic Hawks Lions Bears Sharks Comets'.split())}"


def fresh(make: Callable[[Random], str], random: Random, held_out: bool) -> str:
    """A name on one side of the split."""
    while True:
        name = make(random)
        if is_held_out(name) == held_out:
            return name


def _word(random: Random) -> str:
    return _stem(random) + random.choice(_ENDS) if random.random() < 0.6 else _stem(random) + random.choice(_VOWELS)


def _stem(random: Random) -> str:
    choice = random.choice
    text = choice(_STARTS) + choice(_VOWELS) + choice(_CODAS)
    if random.random() < 0.3:
        text += choice(_ONSETS) + choice(_VOWELS) + choice(_CODAS)
    return text.capitalize()
