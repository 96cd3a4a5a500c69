"""A real Ray cluster of two nodes on this machine, in a process of its own that tests talk to by lines.

add NAME=VALUE ...   a node whose processes have these variables     -> ok
remove               the newest node goes away at once               -> ok
"""

import os
import sys

NODE = {"num_cpus": 2, "object_store_memory": 80 << 20}


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    nodes = [cluster.add_node(**NODE)]
    answer(cluster.address)
    for line in sys.stdin:
        command, *pairs = line.split()
        if command == "add":
            nodes.append(cluster.add_node(**NODE, env_vars=dict(pair.split("=", 1) for pair in pairs)))
        else:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        answer("ok")
    cluster.shutdown()


def answer(text: str) -> None:
    print(f"> {text}", flush=True)


if __name__ == "__main__":
    main()
