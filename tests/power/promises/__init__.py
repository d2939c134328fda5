"""The broker's promises, a file a kind: clients that use one while a run is recorded, and the checks afterwards."""

from __future__ import annotations

from tests.power.promises.acls import Acls
from tests.power.promises.base import Past, Promise
from tests.power.promises.classic import Classic
from tests.power.promises.compaction import Compaction
from tests.power.promises.configs import Configs
from tests.power.promises.expiry_time import ExpiryTimes
from tests.power.promises.features import FeatureLevels
from tests.power.promises.letters import Letters
from tests.power.promises.offsets import Offsets
from tests.power.promises.producer_ids import ProducerIdsOnce
from tests.power.promises.purging import Purging
from tests.power.promises.quotas import Quotas
from tests.power.promises.records import Records
from tests.power.promises.topics import Topics
from tests.power.promises.transactions import Transactions
from tests.power.promises.users import Users

__all__ = ["PROMISES", "Past", "Promise"]

PROMISES: tuple[Promise, ...] = (
    Topics(),
    Transactions(),
    Letters(),
    Offsets(),
    Configs(),
    Users(),
    Acls(),
    FeatureLevels(),
    Quotas(),
    Compaction(),
    Purging(),
    Classic(),
    ExpiryTimes(),
    ProducerIdsOnce(),
    Records(),
)
"""In the order in which they are checked: transactions are brought to their ends before offsets are asked for as
stable, and the appends of Records come last."""
