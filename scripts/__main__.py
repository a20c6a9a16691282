"""Write the reference pages of docs/ again: `make docs`."""

from scripts import llms_page
from scripts.reference_pages import PAGES

for module in (*PAGES, llms_page):  # the last reads the others
    module.PAGE.write_text(module.page())
    print(module.PAGE.name)
