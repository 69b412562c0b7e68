"""Upload exported folders to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from loopkit.errors import UserError


def check_access(repository: str) -> None:
    """Check that the hub can be reached and knows the user, before anything is written.

    Args:
        repository: The repository to upload to, as OWNER/NAME.

    Raises:
        UserError: If the name is invalid, nobody is logged in, or the hub cannot be reached.
    """
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"--push {repository}: not the name of a repository ({error}); use OWNER/NAME") from error
    if repository.count("/") != 1:
        raise UserError(f"--push {repository}: the owner is missing; use OWNER/NAME")
    try:
        HfApi().whoami()
    except Exception as error:  # the class depends on the version: requests', httpx's, or the library's own
        raise UserError(
            f"--push {repository}: the hub does not accept the user, or cannot be reached ({_first_line(error)}). Log "
            "in with hf auth login, check the connection, or export without --push"
        ) from error


def push_folder(folder: Path, repository: str) -> str:
    """Upload a folder as one commit; a repository that does not exist is created, private.

    Args:
        folder: A complete folder.
        repository: As OWNER/NAME.

    Returns:
        The address of the commit.

    Raises:
        UserError: If the upload fails; the folder stays.
    """
    api = HfApi()
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(folder_path=folder, repo_id=repository, commit_message="Upload a looped model")
    except Exception as error:  # the class depends on the version: requests', httpx's, or the library's own
        raise UserError(
            f"--push {repository}: the upload failed ({_first_line(error)}). {folder} is complete; upload it with "
            f"hf upload {repository} {folder}"
        ) from error
    return str(commit.commit_url)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
