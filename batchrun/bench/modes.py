"""Ways to run a workload on the same weights: batchrun itself, and what people do without it.

`continuous`: batchrun.  `static`: its engine, but a batch is filled once and waits for its slowest row, and nothing is
shared.  `serial`: a loop over llama-cpp-python's `Llama` with the schema as response format, what one writes first.
"""

import json
import time
from collections.abc import Callable, Mapping

from batchrun.assembly import Parts, job_reader, slot_plan
from batchrun.bench.ends import MemorySink, MemorySource, Unattended, latencies_from_arrival
from batchrun.bench.figures import Figures, figures
from batchrun.bench.workloads import Workload
from batchrun.core import Completion, FinishReason, Job, Request, Result, Timing, Usage
from batchrun.errors import BatchrunError, UsageError
from batchrun.governor import Allowance
from batchrun.intake import intake
from batchrun.prefix import Planned, common_length
from batchrun.results import judge
from batchrun.runner import Ends, Runner
from batchrun.selection import Selection
from batchrun.worker import Worker

Mode = Callable[[Parts, Workload], Figures]


def continuous(parts: Parts, workload: Workload) -> Figures:
    """Batchrun as it is.  Loading the weights is not part of the wall time."""
    return answered(parts, workload)[1]


def answered(parts: Parts, workload: Workload) -> tuple[list[Result], Figures]:
    """A run of batchrun: its results, in the order in which they came, and its figures."""
    source, sink, nobody = MemorySource(workload), MemorySink(), Unattended()
    ends = Ends(sink, sink, nobody, nobody, time.perf_counter, share_answers=False)
    reader = job_reader(parts.settings, workload.path)
    supplier = intake(parts, reader, source, sink, Selection(), time.perf_counter)
    Runner(parts, supplier, ends, longest_tokens(parts, workload)).run()
    assert source.began_s is not None, "the run looked at its input"
    results = latencies_from_arrival(sink.results, sink.ended_s, workload, source.began_s)
    return results, figures(results, sink.bursts, wall_s=sum(burst.seconds["wall"] for burst in sink.bursts))


def static(parts: Parts, workload: Workload) -> Figures:
    """Batches that wait for their slowest row: what has arrived, at most a row each, is run to the end."""
    load = slot_plan(parts, longest_tokens(parts, workload))
    worker = Worker(
        parts.model.load(load, lambda: False),
        parts.model.tokenizer,
        parts.guide,
        load,
        time.perf_counter,
        share_prefixes=False,
        look_ahead=False,
        fixed_width=True,
    )
    sink = MemorySink()
    waiting = list(zip(requests(parts, workload), workload.arrivals_s, strict=True))
    began_s = time.perf_counter()
    worker.begin(1, Allowance(1e9, 0.0))
    while waiting:
        now_s = time.perf_counter() - began_s
        if waiting[0][1] > now_s:
            time.sleep(waiting[0][1] - now_s)
        batch = [request for request, arrival_s in waiting[: load.rows] if arrival_s <= time.perf_counter() - began_s]
        del waiting[: len(batch)]
        worker.take([Planned(request, None) for request in batch])
        while not worker.idle:
            for completion in worker.step():
                sink.append(judge(completion, "static", 1))
    wall_s = time.perf_counter() - began_s
    stats = worker.end(0.0)
    worker.close()
    results = latencies_from_arrival(sink.results, sink.ended_s, workload, began_s)
    return figures(results, [stats], wall_s=wall_s)


def serial(parts: Parts, workload: Workload) -> Figures:
    """One after another through `llama_cpp.Llama`, which keeps the prefix of its last prompt."""
    import llama_cpp

    if parts.model.card.path is None:
        raise UsageError("mode serial is a loop over llama.cpp; expected a model that is a GGUF file")
    load = slot_plan(parts, longest_tokens(parts, workload))
    llama = llama_cpp.Llama(
        str(parts.model.card.path),
        n_ctx=load.context,
        n_threads=load.threads,
        n_batch=load.batch,
        flash_attn=True,
        verbose=False,
    )
    sink = MemorySink()
    before: tuple[int, ...] = ()
    computed_tokens = 0
    began_s = time.perf_counter()
    for request, arrival_s in zip(requests(parts, workload), workload.arrivals_s, strict=True):
        time.sleep(max(0.0, arrival_s - (time.perf_counter() - began_s)))
        cached_tokens = common_length(before, request.tokens)
        computed_tokens += len(request.tokens) - cached_tokens
        before = request.tokens
        sink.append(judge(_ask(llama, request, parts, cached_tokens), "serial", 1))
    wall_s = time.perf_counter() - began_s
    llama.close()
    results = latencies_from_arrival(sink.results, sink.ended_s, workload, began_s)
    return figures(results, (), wall_s=wall_s, computed_tokens=computed_tokens)


MODES: Mapping[str, Mode] = {"serial": serial, "static": static, "continuous": continuous}


def requests(parts: Parts, workload: Workload) -> list[Request]:
    """The workload's jobs, made ready.  Raises BatchrunError if one cannot run."""
    reader = job_reader(parts.settings, workload.path)
    made = []
    for number, record in enumerate(workload.records, 1):
        job = reader.read(json.dumps(record).encode(), number)
        if not isinstance(job, Job):
            raise BatchrunError(f"benchmark job {job.id} was rejected: {job.problem.message}")
        made.append(parts.preparer.prepare(job, "", time.perf_counter()))
    return made


def longest_tokens(parts: Parts, workload: Workload) -> int:
    """What the longest job needs."""
    return max(request.need_tokens for request in requests(parts, workload))


def _ask(llama: "llama_cpp.Llama", request: Request, parts: Parts, cached_tokens: int) -> Completion:  # type: ignore[name-defined]  # noqa: F821
    """One chat completion, streamed for the time of its first token."""
    from batchrun.prompts import laid_out

    job = request.job
    began_s = time.perf_counter()
    chunks = llama.create_chat_completion(
        messages=[
            {"role": message.role, "content": message.content} for message in laid_out(job, parts.settings.asking())
        ],
        max_tokens=job.max_tokens,
        temperature=0.0,
        response_format={"type": "json_object", "schema": job.schema.content} if job.schema else None,
        stream=True,
    )
    text, tokens, first_s, reason = "", 0, None, None
    for chunk in chunks:
        choice = chunk["choices"][0]
        if choice["delta"].get("content"):
            first_s = first_s or time.perf_counter()
            text += choice["delta"]["content"]
            tokens += 1
        reason = choice["finish_reason"] or reason
    now_s = time.perf_counter()
    return Completion(
        request=request,
        text=text,
        finish_reason=FinishReason.LENGTH if reason == "length" else FinishReason.STOP,
        usage=Usage(len(request.tokens), cached_tokens, tokens, 0),
        timing=Timing(0.0, (first_s or now_s) - began_s, now_s - (first_s or now_s), now_s - began_s),
    )
