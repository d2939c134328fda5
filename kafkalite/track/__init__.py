"""Find records that contain an id, across topics and time, and their state in each consumer group.

    from kafkalite.track import search

    with search("127.0.0.1:9092", "a-17", topics="orders.*", places="header:correlation-id,json:$.id") as found:
        for hit in found:
            print(hit, hit.record.value)
        print(found.complete, found.reach)

    front.py            the entry point: `search`, and Inquiry, the arguments of a search
    verdicts.py         determines the state of each record in each group
    path.py             orders the records found (hits), so that a copy follows its original
    following.py        continues a search with later records
    searches.py         runs a search with several workers
    snapshot.py         selects the topics, and the offset range of each partition
    tracking_file.py    loads the places to search for each topic
    questions.py        the id to find, and the places in a record to search
    document_paths.py   paths in JSON and Avro documents
    reach.py            reports which offsets were read

Each module uses only modules listed below it. Classes and functions are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.track.front import Inquiry as Inquiry
    from kafkalite.track.front import TooLarge as TooLarge
    from kafkalite.track.front import search as search
    from kafkalite.track.path import Step as Step
    from kafkalite.track.path import letters_of as letters_of
    from kafkalite.track.path import steps_of as steps_of
    from kafkalite.track.questions import Place as Place
    from kafkalite.track.questions import Question as Question
    from kafkalite.track.questions import parse_places as parse_places
    from kafkalite.track.reach import Reach as Reach
    from kafkalite.track.searches import Hit as Hit
    from kafkalite.track.searches import Limits as Limits
    from kafkalite.track.searches import Search as Search
    from kafkalite.track.verdicts import Groups as Groups
    from kafkalite.track.verdicts import Verdict as Verdict

_WHERE: Final = {
    "Groups": "kafkalite.track.verdicts",
    "Hit": "kafkalite.track.searches",
    "Inquiry": "kafkalite.track.front",
    "Limits": "kafkalite.track.searches",
    "Place": "kafkalite.track.questions",
    "Question": "kafkalite.track.questions",
    "Reach": "kafkalite.track.reach",
    "Search": "kafkalite.track.searches",
    "Step": "kafkalite.track.path",
    "TooLarge": "kafkalite.track.front",
    "Verdict": "kafkalite.track.verdicts",
    "letters_of": "kafkalite.track.path",
    "parse_places": "kafkalite.track.questions",
    "search": "kafkalite.track.front",
    "steps_of": "kafkalite.track.path",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
