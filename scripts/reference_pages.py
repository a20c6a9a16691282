"""The reference pages that are written by the modules beside this one."""

from scripts import (
    api_page,
    catalog_page,
    cli_index,
    cli_page,
    options_page,
    settings_page,
    troubleshooting_page,
)

PAGES = (
    api_page,
    *api_page.PARTS,
    catalog_page,
    cli_index,
    cli_page,
    options_page,
    settings_page,
    troubleshooting_page,
)
