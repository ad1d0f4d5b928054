"""The files that an upload would send, in a folder."""

from pathlib import Path

from bert_training.cards.hub_upload import published_files


def write_published(folder: Path, target: Path, repo_id: str) -> None:
    """Write what would be uploaded of a folder into a new one."""
    for name, content in published_files(folder, repo_id).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content.encode() if isinstance(content, str) else content.read_bytes())
