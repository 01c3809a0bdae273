"""Where the files of a run go: into memory, where it has the room.

A database in a folder is hundreds of small files, and a test makes one and removes it again: on a
disk that is most of what the tests take. What is asked of the disk stays as it is (`fsync`,
`synchronous = FULL`); a process that is killed loses nothing of what the system has taken over, in
memory as on a disk. Under torture everything is on the disk.
"""

import os
import shutil
import tempfile
from pathlib import Path

from tests.crash.load import TORTURE

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 * 1024**3


def use_memory() -> None:
    """From here on temporary files of this process and its children are in memory: unless
    $TMPDIR says where they are to be, or there is too little of it."""
    if "TMPDIR" in os.environ or TORTURE > 1 or not os.access(MEMORY, os.W_OK):
        return
    # Some containers have a few megabytes of it, or let no program run from there.
    if shutil.disk_usage(MEMORY).free < ROOM_BYTES or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # what was found out before
