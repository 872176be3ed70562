"""The page of Spark's master has a form for each application that may be ended."""

import pytest

from laminar_core.spark.master_page import fields_to_end

PAGE = """
<p>Applications: 2 Running</p><form action="search"><input name="id" value="app-2"></form>
<td><form action="app/kill/" method="POST" class="d-inline">
<input type="hidden" name="id" value="app-1"/><input type="hidden" name="terminate" value="true"/>
{token}<a href="#" class="kill-link float-end">(kill)</a></form></td>
"""
TOKEN = '<input type="hidden" name="csrfToken" value="c57a"/>'


def test_the_form_of_an_application_has_the_fields_that_end_it():
    fields = {"id": "app-1", "terminate": "true"}
    assert fields_to_end(PAGE.format(token=""), "app-1") == fields
    assert fields_to_end(PAGE.format(token=TOKEN), "app-1") == {**fields, "csrfToken": "c57a"}


@pytest.mark.parametrize("page", [PAGE.format(token=""), "", "<form", "not a page <form action>"])
def test_a_page_without_it_has_none(page: str):
    assert fields_to_end(page, "app-2") is None
