"""Many machines, one line: a driver that holds the input and the results, and workers that hold the models.

    Intake -> Window -> Dispatch -> (orders) -> Station: a Runner on its own machine -> (reports) -> Outcomes -> sink

Only `ray_cluster.py` and `ray_connection.py` know Ray: to all others a fleet is whoever takes orders and gives reports.
"""
