"""The table of the verbs names each of them once, with its effect on slices."""

import re
from pathlib import Path

from queue_core import verbs

FOLDER = Path(verbs.__file__).parent
ROWS = re.findall(r"^\| (\w+) +\| (.+?) +\|$", verbs.__doc__, re.MULTILINE)


def test_the_table_names_exactly_the_files_of_the_folder():
    named = sorted(verb for verb, _ in ROWS if verb != "verb")

    assert named == sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "__init__")


def test_each_verb_is_a_function_named_like_its_file():
    for file in FOLDER.glob("*.py"):
        if file.stem != "__init__":
            assert re.search(rf"^def {file.stem}\(", file.read_text(), re.MULTILINE), file.stem
