"""Choose the job of a store: the named one, or the only one."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.objectstore.contract import ObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import JobPaths, is_job_name
from laminar_core.store.checkpoint_store import CheckpointStore

JOBS_NAMED = 10
"""How many jobs an error message names."""

LOOKED_INTO_AT_ONCE = 8
"""Folders that are looked into at the same time: in a bucket each takes one request."""


def open_job(store: str, job: str | None, *, how: str = "--job") -> CheckpointStore:
    """Open the named job, or the only job of the store.

    ``how`` is the option that error messages tell the user to give.

    Raises:
        ConfigurationError: there is no such job, none at all, or a choice to make.
    """
    if job is not None and is_job_name(job) and is_job(open_object_store(store), job):
        return CheckpointStore.open(store, job)
    jobs = job_names(store)
    if job is None and len(jobs) == 1:
        return CheckpointStore.open(store, jobs[0])
    known = ", ".join(jobs[:JOBS_NAMED]) + (" and others" if len(jobs) > JOBS_NAMED else "")
    if not jobs:
        problem = "has no jobs"
    elif job is None:
        problem = f"has the jobs {known}: choose one with {how}"
    else:
        problem = f"has no job {job}; its jobs: {known}"
    raise ConfigurationError(ErrorCode.INVALID_OPTION, f"the store {store} {problem}")


def job_names(store: str) -> list[str]:
    """Return the names of the jobs in the store at this URI.

    A folder belongs to a job if it has the records of one: other folders may lie beside it.
    """
    objects = open_object_store(store)
    folders = [name[:-1] for name in objects.children("") if name.endswith("/")]
    names = [name for name in folders if is_job_name(name)]
    with ThreadPoolExecutor(LOOKED_INTO_AT_ONCE, "laminar-jobs") as threads:
        found = threads.map(partial(_is_open_job, objects), names)
        return [name for name, is_job in zip(names, found, strict=True) if is_job]


def _is_open_job(objects: ObjectStore, name: str) -> bool:
    """Return whether the folder belongs to a job; not if this process may not look into it."""
    try:
        return is_job(objects, name)
    except LaminarError as error:
        if error.code in (ErrorCode.STORE_ACCESS_DENIED, ErrorCode.STORE_READ_ONLY):
            return False
        raise


def is_job(objects: ObjectStore, name: str) -> bool:
    """Return whether the folder has claims, checkpoints or an audit log."""
    return any(makes_a_job(name, child) for child in objects.children(f"{name}/"))


def makes_a_job(name: str, child: str) -> bool:
    """Return whether a folder with this name belongs to a job because of one folder in it."""
    paths = JobPaths(name)
    return f"{name}/{child}" in {paths.generations, paths.checkpoints, paths.audit}


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
