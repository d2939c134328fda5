"""Show jobs: the list, one job, the download of its file, and its cancellation.

Thread rule: any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.console.requests import Done, Download, NotFoundError
from kafkalite.web.users import Role

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest


def jobs_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the jobs, newest first."""
    del client
    return {"jobs": [job.row() for job in request.bench.desk.jobs.all()]}


def job_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the progress or the result of a job."""
    del client
    job = request.bench.desk.jobs.find(request.values[0])
    own = job.who == request.bench.access.name
    return {"job": job.row(), "may_cancel": own or request.bench.access.may(Role.OPERATOR)}


def cancel_action(client: Client, request: ActionRequest) -> Done:
    """Cancel a job. Only the user who started it and operators may do this."""
    del client
    job = request.bench.desk.jobs.find(request.values[0])
    if job.who != request.bench.access.name:
        request.bench.access.require(Role.OPERATOR)
    job.cancel()
    return Done(f"/jobs/{job.id}", {"job": job.id})


def job_file_page(client: Client, request: ActionRequest) -> Download:
    """Return the file of a job. Raises NotFoundError if the file is not complete, or was deleted for newer files."""
    del client
    job = request.bench.desk.jobs.find(request.values[0])
    if job.state != "done" or not job.file_name or not job.path.exists():
        raise NotFoundError("this job has no file, or it was deleted")
    return Download(job.path, job.file_name)
