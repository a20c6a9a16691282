"""
An Airflow provider: DAG runs that start when messages wait, and a sensor for an empty queue.

It needs the extra ``airflow``, and imports the core alone. Airflow finds it by the entry point
``apache_airflow_provider``. The names for DAGs are `ignis_airflow.sensors.QueueEmptySensor`, and
``MessageQueueTrigger(scheme="ignis", …)`` of Airflow's own provider ``common.messaging``, with the
arguments of `ignis_airflow.triggers.MessagesTrigger`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """
    Return what Airflow asks a provider for.

    Returns:
        The name of the distribution, and the class that has the scheme ``ignis``.
    """
    return {
        "package-name": "ignis-queue",
        "name": "ignis",
        "description": "Queues of ignis: asset watchers, and a sensor for an empty queue.",
        "queues": ["ignis_airflow.provider.IgnisProvider"],
    }
