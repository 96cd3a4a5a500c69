"""Many machines, one line: a driver that holds the input and the results, and workers that hold the models.

    Intake -> Window -> Dispatch -> (orders) -> Station: a Runner on its own machine -> (reports) -> Outcomes -> sink

Everything here but `ray_cluster.py` knows nothing of Ray: a fleet is whoever takes orders and gives reports.
"""
