"""Where `init` writes, and which files beside the texts are its own."""

from dataclasses import dataclass
from pathlib import Path

from batchrun.places import Places as RunPlaces
from batchrun.places import stats_beside


@dataclass(frozen=True, slots=True)
class Places:
    """Where both files go, and the schema's name in the jobs."""

    jobs: Path
    schema: Path
    name: str

    @property
    def results(self) -> Path:
        return self.jobs.with_name(f"{self.jobs.name.removesuffix('.jsonl').removesuffix('.jobs')}.results.jsonl")

    @property
    def own(self) -> frozenset[Path]:
        """What is written here and by runs of the jobs, as printed or without -o: no texts, though among them."""
        default = self.jobs.with_name(f"{self.jobs.stem}.results.jsonl")
        runs = [RunPlaces(each, None, False, stats_beside(each)) for each in (self.results, default)]
        return frozenset({self.jobs.resolve(), self.schema.resolve()}.union(*(run.own for run in runs)))
