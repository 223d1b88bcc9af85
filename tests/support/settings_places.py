"""A folder with a `.env`, a project file and a user file of its own, so that no test reads this machine's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchwright.settings import Settings, load


@dataclass
class Places:
    """Texts for each place; an empty one is not written."""

    folder: Path
    user: str = ""
    project: str = ""
    dotenv: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def user_file(self) -> Path:
        return self.folder / "home" / "config.toml"

    @property
    def project_folder(self) -> Path:
        return self.folder / "project"

    def load(self, flags: Mapping[str, object] | None = None, *, simulate: bool = False) -> Settings:
        self.project_folder.mkdir(exist_ok=True)
        self.user_file.parent.mkdir(exist_ok=True)
        for path, text in (
            (self.user_file, self.user),
            (self.project_folder / "batchwright.toml", self.project),
            (self.project_folder / ".env", self.dotenv),
        ):
            if text:
                path.write_text(text, encoding="utf-8")
        return load(
            flags,
            simulate=simulate,
            environment=self.environment,
            folder=self.project_folder,
            user_settings=self.user_file,
        )
