"""File access: atomic writes, and reads of plain files of bounded size only.

A write goes to a temporary file in the same folder, which is flushed and then renamed, so that a file is complete or
absent. A pipe, a device or a folder is neither read nor replaced: reading a pipe may block, and /dev/zero never ends.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import socket
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from .errors import FolderTaken, InvalidInput

try:
    import fcntl
except ImportError:  # Windows: no folder is locked there
    fcntl = None

TEXT = 128 << 20  # bytes of the longest text or JSON file that is read
BINARY = 16 << 30  # and of the longest file that is read into memory whole
_DEEPEST = 100  # lists and names within one another in JSON
_BLOCK = 1 << 20
_WORD = 1 << 63
_OWNER = ".owner"
_PART = ".part"  # in the names of files that are being written
_OLD = 3600.0  # seconds after which nobody writes them any more
_UNPACK: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}


def read_array(path: Path) -> Any:
    """The array of a .npy file; whatever numpy's reader raises becomes a ValueError."""
    import numpy as np

    try:
        found = np.load(check_plain(path), allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # the reader raises SyntaxError, TokenError, MemoryError, ...
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, np.ndarray):
        raise ValueError("it holds several arrays")
    return found


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file atomically: `write` fills a temporary file beside it, which is then renamed to `path`."""
    check_writable(path)
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem[:100]}-", suffix=_PART + path.suffix[:50], dir=path.parent)
    os.close(handle)
    try:
        write(Path(name))
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except (OSError, SafetensorError) as error:  # such as a full disk; name `path`, not the temporary file
        Path(name).unlink(missing_ok=True)
        number = getattr(error, "errno", None) or errno.EIO
        words = getattr(error, "strerror", None) or str(error)
        raise OSError(number, f"{words}; it was not written", str(path)) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sweep(path: Path) -> None:
    """Remove what a killed process left of an earlier writing of this file, an hour ago or more."""
    for left in path.parent.glob(f".{glob.escape(path.stem[:100])}-????????{_PART}{glob.escape(path.suffix[:50])}"):
        with contextlib.suppress(OSError):
            if left.is_file() and time.time() - left.stat().st_mtime > _OLD:
                left.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_with(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text atomically in UTF-8; half characters (lone surrogates) become question marks."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically; NaN and infinity, which JSON does not have, are refused."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be written: a value is NaN, infinite or endless ({error})") from error
    write_bytes(path, text.encode("ascii"))


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Replace a folder atomically: `write` fills a new one beside it. Files of others in the old one are moved over."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".part", dir=target.parent))
    aside = beside.with_suffix(".old")
    try:
        write(beside)
        os.chmod(beside, 0o777 & ~_umask())
        if target.is_dir():
            os.replace(target, aside)
        os.replace(beside, target)
    except BaseException:
        if aside.is_dir() and not target.exists():
            os.replace(aside, target)  # put the old folder back
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if aside.is_dir():
        _carry_over(aside, target)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # makes the renaming itself durable
    finally:
        os.close(handle)


def _carry_over(old: Path, new: Path) -> None:
    """Move the files of a replaced folder that the new one lacks into the new one, and remove the rest."""
    for path in old.iterdir():
        if not os.path.lexists(new / path.name):
            os.replace(path, new / path.name)
    remove_written(old, [path.name for path in old.iterdir() if not path.is_dir()])


def remove_written(folder: Path, names: Iterable[str]) -> None:
    """Remove these files of a folder, then the folder if it is empty. A folder of such a name is another's."""
    for name in names:
        if not (folder / name).is_dir():
            (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextlib.contextmanager
def owned(folder: Path) -> Generator[None]:
    """A folder that no other process uses meanwhile: it is locked by a file with the process and its host, and made if
    it is missing, for as long as something lies in it. A lock is freed when its process dies; a locked folder raises
    `FolderTaken`.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path, handle = folder / _OWNER, _locked(folder / _OWNER)
    try:
        os.truncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is freed, so that nobody locks what goes
        os.close(handle)
        if made:
            with contextlib.suppress(OSError):  # something lies in it
                folder.rmdir()


def _locked(path: Path) -> int:
    """A lock file, opened and locked."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except BlockingIOError as error:
            owner = os.read(handle, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(handle)
            raise FolderTaken(
                f"{path.parent} is in use by {owner}; wait until that has ended, or give another folder"
            ) from error
        except OSError:  # a file system without locks
            return handle
        os.close(handle)  # its owner has just removed it


def remove_folder(folder: Path) -> None:
    """Remove a folder at once, whatever happens on the way: it is renamed first, and then deleted."""
    aside = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed here
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Refuse to write to a device, a pipe or a folder: only a plain file or a new name can be written."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:  # a loop of links, half characters, a zero byte
        raise InvalidInput(f"{str(path)!r} is no name of a file ({error})") from error
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{path} is {_kind(mode)}; give the name of a plain file, or of one that is not there yet")
    if not os.path.exists(os.path.realpath(path)):  # deleted while some process has it open
        raise InvalidInput(f"{path} is a file that was removed; give the name of a plain file")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be created or written; called before the work whose result goes there."""
    there = Path(folder).absolute()
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise InvalidInput(f"{there} is no folder, so {folder} cannot be written into; name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidInput(f"{there} cannot be written into; name another folder, or change its permissions")


def opened_plain(path: Path, most: int) -> BinaryIO:
    """Open a plain file of at most `most` bytes for reading; a pipe or a device is refused without blocking."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:  # half characters, or a zero byte
        raise InvalidInput(f"{str(path)!r} is no name of a file ({error})") from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise InvalidInput(f"{path} is no plain file; copy what it holds into one") from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is {_kind(found.st_mode)}; only plain files are read")
        if found.st_size > most:
            raise InvalidInput(f"{path} has {found.st_size:,} bytes and at most {most:,} are read; it is another file")
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_plain(path: Path, most: int = BINARY) -> Path:
    """The path, if it is a plain file of at most `most` bytes: for libraries that open files themselves."""
    with opened_plain(path, most):
        return path


def read_bytes(path: Path, most: int = BINARY) -> bytes:
    """The content of a plain file."""
    with opened_plain(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: Path, most: int = TEXT) -> str:
    """The text of a plain file in UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def read_unpacked(path: Path, most: int = BINARY) -> bytes:
    """The content of a plain file, decompressed if it begins as gzip or xz do; at most `most` bytes."""
    raw = read_bytes(path, most)
    unpack = next((unpack for mark, unpack in _UNPACK.items() if raw.startswith(mark)), None)
    if unpack is None:
        return raw
    try:
        with unpack(io.BytesIO(raw)) as file:
            found = file.read(most + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InvalidInput(f"{path} is no whole gzip or xz file; it may be cut short ({error})") from error
    if len(found) > most:
        raise InvalidInput(f"{path} unpacks to more than {most:,} bytes; it is another file")
    return found


def read_json(path: Path, most: int = TEXT) -> Any:
    """The values of a plain JSON file; malformed content raises ValueError."""
    return parse_json(read_text(path, most))


def parse_json(text: str) -> Any:
    """The values of a JSON text. Whole numbers of more than 64 bits are read as floats, deep nesting is refused."""
    try:
        found = json.loads(text, parse_int=_whole)
    except RecursionError as error:
        raise InvalidInput(f"lists or names lie within one another more than {_DEEPEST} deep") from error
    level = [found]
    for _ in range(_DEEPEST + 1):
        level = [inner for value in level for inner in _within(value) if type(inner) in (list, dict)]
        if not level:
            return found
    raise InvalidInput(f"lists or names lie within one another more than {_DEEPEST} deep")


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _whole(digits: str) -> int | float:
    number = int(digits) if len(digits) < 30 else _WORD
    return number if -_WORD <= number < _WORD else float(digits)


def sha256_of(path: Path) -> str:
    """The checksum of a plain file, read block by block."""
    found = hashlib.sha256()
    with opened_plain(path, BINARY) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((words for is_kind, words in kinds if is_kind(mode)), "a device")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
