"""Choose the job of a store: the named one, or the only one."""

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import is_job_name
from laminar_core.store.checkpoint_store import CheckpointStore


def open_job(store: str, job: str | None, *, how: str = "--job") -> CheckpointStore:
    """Open the named job, or the only job of the store.

    ``how`` is the option that error messages tell the user to give.

    Raises:
        ConfigurationError: there is no such job, none at all, or a choice to make.
    """
    jobs = job_names(store)
    if job is None and len(jobs) == 1:
        return CheckpointStore.open(store, jobs[0])
    if job in jobs:
        return CheckpointStore.open(store, job)
    known = ", ".join(jobs)
    if not jobs:
        problem = "has no jobs"
    elif job is None:
        problem = f"has the jobs {known}: choose one with {how}"
    else:
        problem = f"has no job {job}; its jobs: {known}"
    raise ConfigurationError(ErrorCode.INVALID_OPTION, f"the store {store} {problem}")


def job_names(store: str) -> list[str]:
    """Return the names of the jobs in the store at this URI."""
    folders = [name[:-1] for name in open_object_store(store).children("") if name.endswith("/")]
    return [name for name in folders if is_job_name(name)]


def newest_manifest(store: CheckpointStore) -> CheckpointManifest:
    """Return the manifest of the newest completed checkpoint on the timeline.

    Its files are not verified.

    Raises:
        ConfigurationError: there is none.
        CorruptCheckpointError: it cannot be read; an older one can be named.
    """
    bases = store.generations.bases()
    for checkpoint_id in reversed(store.manifests.ids()):
        manifest = store.manifests.read(checkpoint_id)
        if on_timeline(checkpoint_id, Generation(manifest.generation), bases):
            return manifest
    raise ConfigurationError(
        ErrorCode.NO_SUCH_CHECKPOINT,
        f"job {store.job} in {store.objects.uri} has no completed checkpoint",
    )
