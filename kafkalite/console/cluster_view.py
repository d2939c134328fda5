"""Run a cluster's sampler, and show its samples: rates, lag and charts.

    Reading.start, stop   start and stop the sampler
    Reading.routes        the first page and other read-only pages
    Reading.names         functions with which the templates of other pages show samples

Thread rule: `start` and `stop` belong to one thread. Pages belong to the thread that has their client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.console.acl_pages import rights_page
from kafkalite.console.brokers import Brokers
from kafkalite.console.chart_sets import ChartSet
from kafkalite.console.home import Home, group_row
from kafkalite.console.places import Route
from kafkalite.console.policies import policies_page, policy_page
from kafkalite.console.replication import quorum_page, replicas_page
from kafkalite.console.sampler import Sampler
from kafkalite.console.subjects import Subjects
from kafkalite.console.transactions import Transactions
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.console.classic import Classic
    from kafkalite.console.latencies import Latencies


class Reading:
    """The sampler of a cluster, and the pages that use its samples.

    `client` belongs to the sampler. `state` and `zookeeper` are arguments of ConsoleServer.
    """

    def __init__(
        self,
        client: Client,
        open_registry: Callable[[], RegistryClient] | None = None,
        *,
        state: Path | None = None,
        zookeeper: str | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self.sampler = Sampler(client, state, latencies)
        self._open_registry = open_registry
        self._classic: Classic | None = None
        if zookeeper is not None:
            from kafkalite.console.classic import Classic

            self._classic = Classic(zookeeper)

    def start(self) -> None:
        """Start sampling."""
        self.sampler.start()

    def stop(self) -> None:
        """Stop sampling. Idempotent."""
        self.sampler.stop()
        if self._classic is not None:
            self._classic.close()

    def routes(self) -> list[tuple[str, dict[str, Route]]]:
        """Return the routes of the pages that the cluster supports."""
        home, brokers, transactions = Home(self.sampler), Brokers(self.sampler), Transactions(self.sampler)
        rows = [
            ("/", {"GET": Route(home.page, "home", "home")}),
            ("/search", {"GET": Route(home.search_page, "search", "home")}),
            ("/policies", {"GET": Route(policies_page, "policies", "policies")}),
            ("/policies/{}", {"GET": Route(policy_page, "policy", "policies")}),
            ("/transactions", {"GET": Route(transactions.page, "transactions", "transactions")}),
            ("/brokers", {"GET": Route(brokers.list_page, "brokers", "brokers")}),
            ("/replicas", {"GET": Route(replicas_page, "replicas", "brokers")}),
            ("/quorum", {"GET": Route(quorum_page, "quorum", "brokers")}),
            ("/brokers/{}", {"GET": Route(brokers.page, "broker", "brokers")}),
            ("/rights", {"GET": Route(rights_page, "rights", "rights")}),
        ]
        if self._open_registry is not None:
            subjects = Subjects(self._open_registry)
            rows.append(("/subjects", {"GET": Route(subjects.list_page, "subjects", "subjects")}))
            rows.append(("/subjects/{}", {"GET": Route(subjects.page, "subject", "subjects")}))
        if self._classic is not None:
            rows.append(("/classic", {"GET": Route(self._classic.page, "classic", "classic")}))
            rows.append(("/classic/topics/{}", {"GET": Route(self._classic.topic_page, "classic_topic", "classic")}))
            rows.append(("/classic/groups/{}", {"GET": Route(self._classic.group_page, "classic_group", "classic")}))
        return rows

    def names(self) -> dict[str, object]:
        """Return the functions and values for templates, by name."""
        return {
            "topics_now": self._topics_now,
            "group_now": self._group_now,
            "group_charts": self._group_charts,
            "topic_charts": self._topic_charts,
            "nav": Nav(self._nav),
            "classic": self._classic is not None,
        }

    def _topics_now(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return rate, groups and lag of these topics from the last sample."""
        sample = self.sampler.latest
        if sample is None:
            return {}
        wanted = {row["name"] for row in rows} & sample.topics.keys()
        found: dict[str, dict[str, Any]] = {
            name: {"rate": sample.topics[name].rate, "groups": 0, "lag": 0} for name in wanted
        }
        for group in sample.groups.values():
            for reading in group.readings:
                row = found.get(reading.topic)
                if row is not None:
                    row["groups"] += 1
                    row["lag"] += reading.lag
        return found

    def _group_now(self, group: str) -> dict[str, Any] | None:
        """Return a group's values in the last sample."""
        sample = self.sampler.latest
        known = None if sample is None else sample.groups.get(group)
        return None if known is None else group_row(known)

    def _group_charts(self, group: str, window: str) -> list[dict[str, Any]]:
        return ChartSet.of(self.sampler, window).group(group)

    def _topic_charts(self, topic: str, window: str) -> list[dict[str, Any]]:
        return ChartSet.of(self.sampler, window).topic(topic)

    def _nav(self) -> list[tuple[str, str, str]]:
        """Return the sections of the console as (name, path, label). Sections that the cluster does not support are
        left out."""
        lacks = self.sampler.lacks
        return [
            ("home", "/", "Overview"),
            ("topics", "/topics", "Topics"),
            ("groups", "/groups", "Groups"),
            ("letters", "/letters", "Dead letters"),
            ("policies", "/policies", "Failures"),
            ("track", "/track", "Track"),
            ("jobs", "/jobs", "Jobs"),
            *([("subjects", "/subjects", "Schemas")] if self._open_registry is not None else []),
            *([] if api.LIST_TRANSACTIONS in lacks else [("transactions", "/transactions", "Transactions")]),
            ("brokers", "/brokers", "Brokers"),
            *([] if api.DESCRIBE_ACLS in lacks else [("rights", "/rights", "ACLs")]),
            *([] if self._classic is None else [("classic", "/classic", "Kafka 0.7")]),
        ]


class Nav:
    """The console's navigation, which each page computes."""

    def __init__(self, rows: Callable[[], list[tuple[str, str, str]]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._rows())
