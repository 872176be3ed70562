"""Databases of one server know nothing of each other, and say what failed."""

from collections.abc import Callable

import pytest

from verification.servers.postgres_database import PostgresDatabase, QueryFailedError


def test_tests_have_databases_of_their_own(new_database: Callable[[], PostgresDatabase]) -> None:
    one, other = new_database(), new_database()
    one.query("CREATE TABLE mine (id int)")
    with pytest.raises(QueryFailedError, match='relation "mine" does not exist'):
        other.query("SELECT * FROM mine")


def test_rows_of_all_statements_are_texts(new_database: Callable[[], PostgresDatabase]) -> None:
    rows = new_database().query("SELECT 1, null", "SELECT E'a\nb,\"c\"', true")
    assert rows == [["1", ""], ['a\nb,"c"', "t"]]


def test_a_statement_that_fails_ends_the_others(
    new_database: Callable[[], PostgresDatabase],
) -> None:
    database = new_database()
    with pytest.raises(QueryFailedError, match="division by zero"):
        database.query("CREATE TABLE a ()", "SELECT 1/0", "CREATE TABLE b ()")
    assert database.query("SELECT relname FROM pg_class WHERE relname IN ('a', 'b')") == [["a"]]
