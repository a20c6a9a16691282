"""`IgnisProvider`: the scheme ``ignis`` of Airflow's ``MessageQueueTrigger``."""

from __future__ import annotations

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from ignis_airflow.triggers import MessagesTrigger


class IgnisProvider(BaseMessageQueueProvider):
    """The queues of ignis, for ``MessageQueueTrigger(scheme="ignis", queue_name=…, path=…)``."""

    scheme = "ignis"

    def trigger_class(self) -> type[MessagesTrigger]:
        """Return the class of the trigger, which gets the other arguments."""
        return MessagesTrigger
