"""How many files a process may have open: as many as the processes that prepare its batches need.

Their tensors come through open files. Without room for one, a process of torch waits for ever for the other.
"""

import resource

from tokenization.errors import UserError

ALONE, EACH = 64, 32  # a training alone, and what each process adds that prepares batches


def make_room(workers: int) -> None:
    """Raise this process's limit of open files, where the system allows it, to what so many processes need.

    Raises:
        ValueError: the system does not allow it.
    """
    needed = ALONE + EACH * workers
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        fewer = ", or give fewer --dataloader_num_workers" if workers else ""
        raise UserError(
            f"a process may have at most {most} files open here, and this training may need {needed}; allow that many "
            f"(ulimit -n {needed}){fewer}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
