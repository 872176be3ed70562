"""The web page of Spark's standalone master, as far as it ends applications."""

from html.parser import HTMLParser


class _Forms(HTMLParser):
    """Collects the forms of a page: where each is sent, and its hidden fields."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a form, or a field of the form before it."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((given.get("action", ""), {}))
        elif tag == "input" and self.found and "name" in given:
            self.found[-1][1][given["name"]] = given.get("value", "")


def fields_to_end(page: str, application_id: str) -> dict[str, str] | None:
    """Return the fields of the form that ends this application; None: the page has none.

    Since Spark 4.3 one of them is a token without which the master refuses (CSRF). A page without
    the form belongs to a master with ``spark.ui.killEnabled=false``.
    """
    forms = _Forms()
    forms.feed(page)
    for action, fields in forms.found:
        if action.strip("/").endswith("app/kill") and fields.get("id") == application_id:
            return fields
    return None
