"""Write the reference pages of docs/ again: `make docs`."""

from scripts import (
    api_page,
    catalog_page,
    cli_page,
    llms_page,
    options_page,
    settings_page,
    troubleshooting_page,
)

for module in (
    api_page,
    catalog_page,
    cli_page,
    options_page,
    settings_page,
    troubleshooting_page,
    llms_page,  # the last: it reads the others
):
    module.PAGE.write_text(module.page())
    print(module.PAGE.name)
