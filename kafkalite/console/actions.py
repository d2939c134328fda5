"""Paths that lead to changes, and the pages from which they go out.

    GET  a form, or what would be done ─▶ POST  the same path: done, and on to where it is seen

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from kafkalite.console.places import Place
from kafkalite.console.sending import produce_page, send_action, sent_page
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPTS: Final = {
    "actions.css": "text/css; charset=utf-8",
}
ACTIONS: Final = (
    (
        "/produce",
        {
            "GET": Place(produce_page, "produce", "topics", Role.OPERATOR),
            "POST": Place(send_action, "produce", "topics", Role.OPERATOR),
        },
    ),
    ("/sent", {"GET": Place(sent_page, "sent", "topics")}),
)
NOTICES: Final = {
    "sent": "The record was sent; here it is.",
}
"""What a page says above itself after a change, by the field `done` of its address: a link cannot put words there."""


def notice_of(environ: Mapping[str, Any]) -> str:
    """ "" for none."""
    try:
        fields = dict(parse_qsl(environ.get("QUERY_STRING", ""), max_num_fields=50))
    except ValueError:
        return ""
    return NOTICES.get(fields.get("done", ""), "")
