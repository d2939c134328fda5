"""Decode the Avro values of record batches, for loads without Spark.

    value ─▶ value │ decoded struct │ schema_id │ avro_error

The columns are the same as those of the Spark engine.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.decoder import AvroDecoder, DecodeError
from kafkalite.load.decoded import DECODED, place_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import Type
    from kafkalite.load.columns import Aliases

SCHEMA_ID, ERROR = "schema_id", "avro_error"
EXCEPTION: Final = "kafkalite.avro.DecodeError"


class AvroValues:
    """A decoder of Avro values into columns of the subject's latest schema.

    Raises RegistryRefused and RegistryUnreachable.

    `mode` decides what happens with a record whose value cannot be decoded:

        "failfast"     the load fails
        "permissive"   the record is loaded with the reason, without a decoded value
        "dlq"          the record becomes a dead letter
    """

    def __init__(self, registry: RegistryClient, subject: str, mode: str) -> None:
        self.aside: Mapping[str, str] = {ERROR: EXCEPTION} if mode == "dlq" else {}
        self.errors = "" if mode == "failfast" else ERROR
        schema = registry.latest(subject).schema
        self.aliases: Aliases = aliases_of(schema.root)
        self._decoder = AvroDecoder(registry, schema.standalone(), mode="permissive")
        self._type = spark_type(self._decoder.arrow_type)

    def decoded(self, batch: Any) -> Any:
        """Return the batch with columns of its decoded values.

        In the mode "failfast", LoadError for the first value that cannot be decoded.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self._decoder.decode(batch.column("value"))
        errors = found.errors()
        if not self.errors and errors.null_count < batch.num_rows:
            row = pc.is_valid(errors).index(True).as_py()
            error = DecodeError(row, int(found.schema_ids[row]), errors[row].as_py(), place_of(batch, row))
            raise LoadError(str(error)) from error
        ids = pa.array(found.schema_ids, pa.int64(), mask=found.schema_ids < 0)
        columns = [*batch.columns, as_spark(found.values, self._type), ids, errors]
        return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, DECODED, SCHEMA_ID, ERROR])


def aliases_of(kind: Type, path: str = DECODED, above: tuple[str, ...] = ()) -> dict[str, Sequence[str]]:
    """Return the aliases of a schema's fields. The keys are the fields' paths in the table, such as `decoded.id`.

    Recursive types are skipped, because they have no columns.
    """
    found: dict[str, Sequence[str]] = {}
    branches = [branch for branch in kind.branches if branch.kind != "null"]
    if len(branches) == 1:
        return aliases_of(branches[0], path, above)
    for number, branch in enumerate(branches):
        found |= aliases_of(branch, f"{path}.member{number}", above)
    if kind.items is not None:
        found |= aliases_of(kind.items, f"{path}{'[]' if kind.kind == 'array' else '{}'}", above)
    if kind.fields and kind.name not in above:
        for field in kind.fields:
            if field.aliases:
                found[f"{path}.{field.name}"] = field.aliases
            found |= aliases_of(field.type, f"{path}.{field.name}", (*above, kind.name))
    return found


def as_spark(values: Any, made: Any) -> Any:
    """Cast decoded values to an Arrow type that `spark_type` returned.

    Times are truncated to microseconds. A time outside Spark's range becomes another time; the query does not fail.
    """
    return values.cast(made, safe=False)


def spark_type(made: Any) -> Any:
    """Return the Arrow type that Spark uses instead of the given one."""
    import pyarrow as pa

    if pa.types.is_struct(made):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in made])
    if pa.types.is_map(made):
        return pa.map_(pa.string(), spark_type(made.item_type))
    if pa.types.is_list(made):
        return pa.list_(spark_type(made.value_type))
    if pa.types.is_timestamp(made):
        return pa.timestamp("us", tz=made.tz)
    if pa.types.is_time32(made):
        return pa.int32()
    if pa.types.is_time64(made):
        return pa.int64()
    if pa.types.is_fixed_size_binary(made):
        return pa.binary()
    return made
