"""Options that several commands share."""

import click

store_option = click.option(
    "--store",
    required=True,
    envvar="LAMINAR_STORE",
    show_envvar=True,
    help="Directory or URI of the checkpoint store.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
