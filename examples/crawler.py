"""Read a web site from link to link; each page once.

    python examples/crawler.py /tmp/crawler http://127.0.0.1:8000/

The handler loads the links of a page into the queue that it works off. The setting `dedup` leaves
out addresses that the queue has had, and `retry` brings back pages that could not be read.
"""

import re
import sys
import time
import urllib.parse
import urllib.request

import pyarrow as pa

from queue_core import ConsumerPool, Retry, Store, constant, limit


def main(path: str, start: str) -> dict[str, str]:
    """Read all pages that *start* leads to, on its own host; return their titles."""
    host = urllib.parse.urlsplit(start).netloc
    with Store.open(path) as store:
        addresses = store.create_queue(
            "addresses",
            pa.schema([("url", pa.string())]),
            exist_ok=True,
            dedup=["url"],
            dedup_window="1d",
            limits=limit(per_second=50),  # be polite
            retry=Retry(attempts=3, backoff=constant(1)),
        )
        titles = store.create_queue(
            "titles", pa.schema([("url", pa.string()), ("title", pa.string())]), exist_ok=True
        )

        def visit(message: dict) -> bool:
            with urllib.request.urlopen(message["url"], timeout=10) as answer:
                text = answer.read().decode()
            links = {urllib.parse.urljoin(message["url"], each) for each in hrefs(text)}
            here = [{"url": each} for each in links if urllib.parse.urlsplit(each).netloc == host]
            if here:
                addresses.load(here)
            titles.load([{"url": message["url"], "title": title(text)}])
            return True

        addresses.load([{"url": start}])
        with ConsumerPool(store, "addresses", visit, concurrency=4):
            while unfinished(store):
                time.sleep(0.05)
        found = titles.browse().select(["url", "title"]).to_pylist()
        return {row["url"]: row["title"] for row in found}


def unfinished(store: Store) -> int:
    """Return the number of pages that were neither read nor given up."""
    (row,) = store.view("queues", "addresses").to_pylist()
    return int(row["waiting"] + row["in_flight"] + row["retrying"])


def hrefs(text: str) -> list[str]:
    """Return the addresses of the links of a page, without their anchors."""
    return [each.partition("#")[0] for each in re.findall(r'href="([^"]+)"', text)]


def title(text: str) -> str:
    """Return the title of a page."""
    found = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
    return found[1].strip() if found else ""


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/crawler.py FOLDER URL")
    print(main(*sys.argv[1:]))
