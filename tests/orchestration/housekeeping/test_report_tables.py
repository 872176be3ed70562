"""Tables as Dagster's pages show them."""

from laminar_core.orchestration.housekeeping.report_tables import table_of


def test_columns_stay_in_their_order_and_have_their_types() -> None:
    table = table_of(
        [{"z": 1, "a": "x", "m": 0.5, "b": True}, {"z": 2, "a": "y", "m": 1.5, "b": False}]
    )
    assert [(column.name, column.type) for column in table.schema.columns] == [
        *(("z", "int"), ("a", "string"), ("m", "float"), ("b", "bool")),
    ]
    assert [row.data["z"] for row in table.records] == [1, 2]
