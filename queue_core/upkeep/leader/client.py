"""The group in which instances elect a leader. Needs neither a catalog nor ZooKeeper."""

#: The name under which instances meet in ZooKeeper by default.
CLIENT_ID = "ignis"
