"""Upload and download of shipped policies: a repository on the Hugging Face hub, or a folder.

A repository has SKILL.safetensors and SKILL.md for each of its skills, and a README.md with the
front matter that the hub reads, followed by all cards. Downloaded files are checked before they are
written to their destination, and reading them runs no code.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from skills import registry
from skills.policies import pretrained, shipped
from skills.policies.card import Card, markdown
from tpsrl.errors import UserError
from tpsrl.runtime import files

README = "README.md"
_EXTRA = "pip install 'tpsrl[hub]'"


class Repository(Protocol):
    """Storage of shipped policies, with all files at the root.

    `state` describes the version that was last read or written.
    """

    state: str

    def sizes(self) -> dict[str, int]:
        """Returns the sizes of files in bytes by name; {} for a repository that does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """Returns the content of a file."""
        ...

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """Writes files, replacing those of the same names; `message` describes the change."""
        ...


class FolderRepository:
    """Local folder as a repository.

    Raises:
        UserError: `revision` is given; a folder has no revisions.
    """

    def __init__(self, folder: Path, revision: str | None = None) -> None:
        if revision is not None:
            raise UserError(f"revision: the folder {folder} has no revisions; leave it out")
        self.folder, self.state = folder, str(folder)

    def sizes(self) -> dict[str, int]:
        """See `Repository.sizes`."""
        if not self.folder.is_dir():
            return {}
        return {path.name: path.stat().st_size for path in self.folder.iterdir() if path.is_file()}

    def read(self, name: str) -> bytes:
        """See `Repository.read`.

        Raises:
            UserError: the file cannot be read.
        """
        try:
            return files.plain(self.folder / name).read_bytes()
        except OSError as error:
            raise UserError(f"repo: cannot read {self.folder / name} ({error.strerror})") from None

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """See `Repository.write`; `message` is ignored.

        Raises:
            UserError: the folder cannot be written.
        """
        for name, content in contents.items():
            _write(self.folder / name, content, "repo")


class HubRepository:
    """Model repository on the Hugging Face hub; `name` is OWNER/NAME.

    huggingface_hub looks up the credentials (`hf auth login`, HF_TOKEN).

    Raises:
        UserError: huggingface_hub is not installed; the message says how to install it.
    """

    def __init__(self, name: str, revision: str | None = None, private: bool = False) -> None:
        try:
            import huggingface_hub
            from huggingface_hub import errors
        except ImportError:
            raise UserError(f"repo: {name} is on the hub, which needs {_EXTRA}") from None
        self.name, self.state, self.revision, self.private = name, name, revision, private
        self._add, self._absent = huggingface_hub.CommitOperationAdd, errors.RepositoryNotFoundError
        self._api = huggingface_hub.HfApi()
        self._seen = revision

    def sizes(self) -> dict[str, int]:
        """See `Repository.sizes`.

        Raises:
            UserError: the request fails; the message is the hub's.
        """
        try:
            found = self._api.model_info(self.name, revision=self.revision, files_metadata=True)
        except self._absent:
            return {}
        except Exception as error:
            raise self._failed(error) from error
        self._seen, self.state = found.sha, f"{self.name} at {found.sha}"
        return {file.rfilename: file.size or 0 for file in found.siblings}

    def read(self, name: str) -> bytes:
        """See `Repository.read`; reads the commit that the last call of `sizes` found.

        Raises:
            UserError: the request fails; the message is the hub's.
        """
        try:
            path = self._api.hf_hub_download(self.name, name, revision=self._seen)
            return Path(path).read_bytes()
        except Exception as error:
            raise self._failed(error) from error

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """See `Repository.write`; writes one commit, and creates the repository if necessary.

        Raises:
            UserError: the request fails; the message is the hub's.
        """
        operations = [self._add(name, content) for name, content in contents.items()]
        try:
            self._api.create_repo(self.name, private=self.private, exist_ok=True)
            done = self._api.create_commit(
                self.name, operations, commit_message=message, revision=self.revision
            )
        except Exception as error:
            raise self._failed(error) from error
        self.state = f"{self.name} at {done.oid}"

    def _failed(self, error: Exception) -> UserError:
        # huggingface_hub raises errors of its own, of the network, and others.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return UserError(f"repo: {self.name}: {lines[0] if lines else type(error).__name__}")


def open_repository(repo: str, revision: str | None = None, private: bool = False) -> Repository:
    """Opens a repository.

    Args:
        repo: OWNER/NAME on the hub; or a folder: file://PATH, or a path that begins with /, . or ~
        revision: branch, tag or commit; None for the main branch
        private: whether a repository that is created is private

    Raises:
        UserError: `repo` has another form, or huggingface_hub is not installed.
    """
    path = repo.removeprefix("file://")
    if path != repo or path.startswith(("/", ".", "~")):
        return FolderRepository(files.user_path(path, "repo"), revision)
    owner, _, name = repo.partition("/")
    if not owner or not name or "/" in name:
        raise UserError(f"repo: '{repo}' is neither OWNER/NAME nor a folder (./FOLDER)")
    return HubRepository(repo, revision, private)


def push(what: str, repository: Repository) -> list[str]:
    """Uploads shipped policies to a repository and keeps the others in it.

    Args:
        what: name of a skill, for the policy that comes with tpsrl; "pretrained" for all of those;
            a folder of shipped policies, or a file
        repository: destination

    Returns:
        The skills whose policies were uploaded.

    Raises:
        UserError: the policy is missing or invalid, or the upload fails.
    """
    contents: dict[str, bytes] = {}
    cards: dict[str, Card] = {}
    for skill, path in _sources(what).items():
        cards[skill] = shipped.check(path, skill, field="hub push")
        contents[pretrained.file_name(skill)] = path.read_bytes()
        contents[pretrained.card_name(skill)] = markdown(cards[skill]).encode()
    skills = list(cards)
    for skill, size in _held(repository).items():
        if skill not in cards:
            cards[skill] = _fetched(repository, skill, size)[1]
    # The README describes the policies, so it is written last.
    contents[README] = page({name: cards[name] for name in sorted(cards)}).encode()
    repository.write(contents, f"Policies for {', '.join(skills)}")
    return skills


def pull(repository: Repository, folder: Path, skill: str = "", replace: bool = True) -> list[Path]:
    """Downloads shipped policies with their cards, and checks all before writing any.

    Args:
        repository: source
        folder: destination
        skill: skill whose policy to download; "" for all
        replace: whether to overwrite other policies of the same skills

    Returns:
        Paths of the policies.

    Raises:
        UserError: the repository has no such policy, a policy is invalid, or the folder cannot be
            written or, without `replace`, has another policy for a skill.
    """
    held = _held(repository)
    if not held:
        raise UserError("repo: contains no policy of a known skill")
    if skill and skill not in held:
        raise UserError(f"repo: contains no policy for {skill}, but for {', '.join(held)}")
    chosen = [skill] if skill else list(held)
    found = {}
    for name in chosen:
        content, card = _fetched(repository, name, held[name])
        if not replace:
            _check_same(folder / pretrained.file_name(name), content)
        found[folder / pretrained.file_name(name)] = content
        found[folder / pretrained.card_name(name)] = markdown(card).encode()
    files.check_replaceable(folder, (path.name for path in found))
    for path, content in found.items():
        _write(path, content, "out")
    return [folder / pretrained.file_name(name) for name in chosen]


def page(cards: Mapping[str, Card]) -> str:
    """Formats the README.md of a repository: the front matter that the hub reads, and all cards."""
    licences = {card.licence for card in cards.values()}
    licence = "mit" if licences == {"MIT"} else "other"
    tags = ["tpsrl", "robotics", "reinforcement-learning", "embodied-ai", *cards]
    head = ["---", "library_name: tpsrl", f"license: {licence}", "pipeline_tag: robotics", "tags:"]
    front = "\n".join([*head, *(f"- {tag}" for tag in tags), "---"])
    return "\n\n".join([front, *(markdown(card) for card in cards.values())])


def _sources(what: str) -> dict[str, Path]:
    """Returns the files to upload by skill; see `push` for `what`."""
    if what in registry.names():
        return {what: pretrained.find(what)}
    path = pretrained.FOLDER if what == pretrained.WORD else files.user_path(what, "agent")
    if path.is_file():
        return {path.stem: path}
    found = {name: path / pretrained.file_name(name) for name in pretrained.names(path)}
    if not found:
        raise UserError(
            f"hub push: '{what}' is neither a skill nor a folder of policies written by `tpsrl "
            "export`"
        )
    return found


def _held(repository: Repository) -> dict[str, int]:
    """Returns the size in bytes of each policy in a repository, by skill."""
    there = repository.sizes()
    files_of = {name: pretrained.file_name(name) for name in registry.names()}
    return {name: there[file] for name, file in files_of.items() if file in there}


def _fetched(repository: Repository, skill: str, size: int) -> tuple[bytes, Card]:
    """Downloads and checks a policy; returns its content and its card."""
    name = pretrained.file_name(skill)
    shipped.check_size(size, name, "repo")
    content = repository.read(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return content, shipped.check(path, skill, name, "repo")


def _check_same(path: Path, content: bytes) -> None:
    """Raises an error if a file with other content exists: it may be the user's own export."""
    if path.is_file() and path.read_bytes() != content:
        raise UserError(
            f"out: {path} differs from the file in the repository; choose another out, or set "
            "replace=true"
        )


def _write(path: Path, content: bytes, field: str) -> None:
    try:
        with files.atomic(path, durable=True) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UserError(f"{field}: cannot write '{path}' ({error.strerror})") from None
