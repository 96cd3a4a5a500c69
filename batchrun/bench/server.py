"""llama-server as a peer: started on loopback with explicit slots, driven by as many clients.

Any build serves; its path is given by the user.  Token counts and times are the server's own.
"""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchrun.asking import Asking
from batchrun.assembly import Parts, slot_plan
from batchrun.bench.ends import MemorySink
from batchrun.bench.figures import Figures, figures
from batchrun.bench.modes import longest_tokens, requests
from batchrun.bench.workloads import Workload
from batchrun.core import Completion, FinishReason, Request, Timing, Usage
from batchrun.errors import UsageError
from batchrun.prompts import laid_out
from batchrun.results import judge

HOST = "127.0.0.1"
START_TRIES, START_WAIT_S = 600, 0.1
REQUEST_TIMEOUT_S = 600


class LlamaServer:
    """A mode that runs a workload through a llama-server binary."""

    def __init__(self, binary: Path) -> None:
        if not binary.is_file():
            raise UsageError(f"--peer {binary} is no file; expected a llama-server binary")
        self._binary = binary

    def __call__(self, parts: Parts, workload: Workload) -> Figures:
        load = slot_plan(parts, longest_tokens(parts, workload))
        sink = MemorySink()
        with self._running(parts, load.rows, load.context, load.threads) as port:
            began_s = time.perf_counter()

            def ask(work: tuple[Request, float]) -> Completion:
                time.sleep(max(0.0, work[1] - (time.perf_counter() - began_s)))
                return _ask(port, work[0], parts.settings.asking())

            computed_tokens = 0
            with ThreadPoolExecutor(load.rows) as clients:
                jobs = zip(requests(parts, workload), workload.arrivals_s, strict=True)
                for completion in clients.map(ask, jobs):
                    sink.append(judge(completion, "llama-server", 1))
                    computed_tokens += completion.usage.prompt_tokens - completion.usage.cached_tokens
            wall_s = time.perf_counter() - began_s
        return figures(sink.results, (), wall_s=wall_s, computed_tokens=computed_tokens)

    @contextmanager
    def _running(self, parts: Parts, rows: int, context: int, threads: int) -> Iterator[int]:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        command = [str(self._binary), "--host", HOST, "--port", str(port), "--model", str(parts.model.card.path)]
        command += ["-np", str(rows), "-c", str(rows * context), "-t", str(threads), "-fa", "on", "--jinja"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_until_healthy(port, process)
            yield port
        finally:
            process.terminate()
            process.wait()


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(START_TRIES):
        if process.poll() is not None:
            break
        try:
            connection = http.client.HTTPConnection(HOST, port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(START_WAIT_S)
    raise UsageError(f"the peer did not start (exit status {process.poll()})")


def _ask(port: int, request: Request, asking: Asking) -> Completion:
    job = request.job
    body: dict[str, Any] = {
        "messages": [{"role": message.role, "content": message.content} for message in laid_out(job, asking)],
        "max_tokens": job.max_tokens,
        "temperature": 0,
    }
    if job.schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": job.schema.content}}
    began_s = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_TIMEOUT_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    total_s = time.perf_counter() - began_s
    if "choices" not in answer:
        raise UsageError(f"the peer refused job {job.id}: {json.dumps(answer)[:200]}")
    choice, timings = answer["choices"][0], answer["timings"]
    decode_s = timings["predicted_ms"] / 1000
    prompt_tokens = len(request.tokens)
    return Completion(
        request=request,
        text=choice["message"]["content"] or "",
        finish_reason=FinishReason.LENGTH if choice["finish_reason"] == "length" else FinishReason.STOP,
        usage=Usage(prompt_tokens, max(0, prompt_tokens - timings["prompt_n"]), timings["predicted_n"], 0),
        timing=Timing(0.0, max(0.0, total_s - decode_s), decode_s, total_s),
    )
