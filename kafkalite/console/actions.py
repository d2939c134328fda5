"""Define the console's routes for changes, exports, jobs and live tails.

    GET    shows a form, or the effect of the change
    POST   makes the change, and redirects to its result

Thread rule: immutable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from kafkalite.console.altering import (
    alter_action,
    alter_page,
    create_topic_action,
    delete_topic_action,
    delete_topic_page,
    grow_action,
    grow_page,
    new_topic_page,
    trim_action,
    trim_page,
)
from kafkalite.console.exporting import export_action, export_page
from kafkalite.console.job_pages import cancel_action, job_file_page, job_page, jobs_page
from kafkalite.console.places import Route
from kafkalite.console.redriving import letter_page, redrive_action, redrive_edited_action, resolve_action
from kafkalite.console.resetting import (
    delete_group_action,
    delete_group_page,
    file_action,
    reset_action,
    reset_page,
)
from kafkalite.console.sending import produce_page, send_action, sent_page
from kafkalite.console.tailing import tail_page
from kafkalite.console.transactions import abort_action, abort_page
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.console.places import Page

SCRIPTS: Final = {
    "actions.css": "text/css; charset=utf-8",
    "actions.js": "text/javascript; charset=utf-8",
    "tail.js": "text/javascript; charset=utf-8",
}
NOTICES: Final = {
    "sent": "The record was sent.",
    "reset": "The offsets were reset.",
    "group-deleted": "The group was deleted.",
    "created": "The topic was created.",
    "altered": "The settings were changed.",
    "grown": "The partitions were added.",
    "trimmed": "The records were deleted.",
    "topic-deleted": "The topic was deleted.",
    "aborted": "The transaction was aborted. read_committed consumers do not see its records.",
}
"""Notices shown after a change, by the field `done` of the address: a link cannot inject text."""


def pair(page: Page, action: Page, template: str, part: str, role: Role) -> dict[str, Route]:
    """Return two routes with one path: GET shows the form, POST performs the action."""
    return {"GET": Route(page, template, part, role), "POST": Route(action, template, part, role)}


ACTIONS: Final = (
    ("/produce", pair(produce_page, send_action, "produce", "topics", Role.OPERATOR)),
    ("/sent", {"GET": Route(sent_page, "sent", "topics")}),
    ("/new-topic", pair(new_topic_page, create_topic_action, "new_topic", "topics", Role.ADMIN)),
    ("/topics/{}/tail", {"GET": Route(tail_page, "tail", "topics")}),
    ("/topics/{}/export", pair(export_page, export_action, "export", "topics", Role.VIEWER)),
    ("/topics/{}/alter", pair(alter_page, alter_action, "alter", "topics", Role.ADMIN)),
    ("/topics/{}/grow", pair(grow_page, grow_action, "grow", "topics", Role.ADMIN)),
    ("/topics/{}/trim", pair(trim_page, trim_action, "trim", "topics", Role.ADMIN)),
    ("/topics/{}/delete", pair(delete_topic_page, delete_topic_action, "delete_topic", "topics", Role.ADMIN)),
    ("/groups/{}/reset", pair(reset_page, reset_action, "reset", "groups", Role.OPERATOR)),
    ("/groups/{}/reset-from-file", {"POST": Route(file_action, "reset", "groups", Role.OPERATOR)}),
    ("/groups/{}/delete", pair(delete_group_page, delete_group_action, "delete_group", "groups", Role.ADMIN)),
    ("/letters/{}/redrive", {"POST": Route(redrive_action, "failed", "letters", Role.OPERATOR)}),
    ("/letters/{}/resolve", {"POST": Route(resolve_action, "failed", "letters", Role.OPERATOR)}),
    ("/letters/{}/{}/{}", {"GET": Route(letter_page, "letter", "letters")}),
    (
        "/letters/{}/{}/{}/redrive",
        {"POST": Route(redrive_edited_action, "letter", "letters", Role.OPERATOR)},
    ),
    (
        "/transactions/{}/{}/{}/abort",
        pair(abort_page, abort_action, "abort", "transactions", Role.ADMIN),
    ),
    ("/jobs", {"GET": Route(jobs_page, "jobs", "jobs")}),
    ("/jobs/{}", {"GET": Route(job_page, "job", "jobs")}),
    ("/jobs/{}/cancel", {"POST": Route(cancel_action, "failed", "jobs")}),
    ("/jobs/{}/file", {"GET": Route(job_file_page, "failed", "jobs")}),
)


def notice_of(environ: Mapping[str, Any]) -> str:
    """Return the notice for the query field `done`, or "". An action sets this field in the redirect to its result."""
    try:
        fields = dict(parse_qsl(environ.get("QUERY_STRING", ""), max_num_fields=50))
    except ValueError:
        return ""
    return NOTICES.get(fields.get("done", ""), "")
