"""The command that tests a store under faults."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pyspark_ignis.cli.app import app, duration, working
from pyspark_ignis.cli.display import console, show_json
from pyspark_ignis.cli.invocation import Invocation

#: The exit code after a broken promise.
_BROKEN = 1


@app.command(rich_help_panel="Maintain")
def soak(
    ctx: typer.Context,
    time: Annotated[
        str, typer.Option(metavar="TIME", help="How long processes load and fire.")
    ] = "1m",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Decides what happens when. By default, another each time."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File for the result, as JSON. By default, none.")
    ] = None,
) -> None:
    """
    Load and fire with processes that are killed and stopped, and check the fate of each message.

    It creates its own queues in the store, and deactivates them at the end. While it runs, you can
    restart the database, cut the network or fill the disk: no message may be lost or doubled.
    """
    # It starts processes and needs more of the core than other commands.
    from pyspark_ignis.soak import report as reports
    from pyspark_ignis.soak.soak import Soak
    from pyspark_ignis.soak.workload import Scene

    call = Invocation.current(ctx)
    seconds = duration("time", time)
    seed = random.randrange(1 << 30) if seed is None else seed
    call.store(create=True).close()
    folder = Path(tempfile.mkdtemp(prefix="ignis-soak-"))
    trial = Soak(Scene(call.address_of_store(), folder, prefix=f"soak_{seed}_"), seed)
    with working("soaking"):
        result = trial.run(seconds, trial.faults())
    with call.store() as store:
        for name in trial.scene.queues:
            store.deactivate(trial.scene.prefix + name)
    if report is not None:
        reports.save(result, report)
    if call.as_json:
        show_json(result.as_dict())
    else:
        reports.show(result, console())
    if result.right:
        shutil.rmtree(folder)
    else:
        console(stderr=True).print(f"the histories of all processes are in {folder}")
        raise typer.Exit(_BROKEN)
