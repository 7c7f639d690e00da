"""Shipped policies in a repository: of the Hugging Face hub, or a folder that stands for one.

A repository holds for each of its skills SKILL.safetensors and SKILL.md, and a README.md with all
cards under the front matter that the hub reads. What comes from a repository is checked before it
is put in place, and reading it runs no code.
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
    """Where shipped policies are put and got; all files lie at its root.

    `state` is what the state is called that was seen or made last.
    """

    state: str

    def sizes(self) -> dict[str, int]:
        """The bytes of its files by name; {} of one that there is not yet."""
        ...

    def read(self, name: str) -> bytes:
        """What a file holds."""
        ...

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """Puts files in the place of those of the same names."""
        ...


class FolderRepository:
    """A folder in the place of a repository.

    Raises:
        UserError: a revision is asked for, which a folder does not have.
    """

    def __init__(self, folder: Path, revision: str | None = None) -> None:
        if revision is not None:
            raise UserError(f"revision: the folder {folder} has none; leave it out")
        self.folder, self.state = folder, str(folder)

    def sizes(self) -> dict[str, int]:
        """See `Repository.sizes`."""
        if not self.folder.is_dir():
            return {}
        return {path.name: path.stat().st_size for path in self.folder.iterdir() if path.is_file()}

    def read(self, name: str) -> bytes:
        """See `Repository.read`.

        Raises:
            UserError: it cannot be read.
        """
        try:
            return files.plain(self.folder / name).read_bytes()
        except OSError as error:
            raise UserError(f"repo: cannot read {self.folder / name} ({error.strerror})") from None

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """See `Repository.write`; the message is not kept.

        Raises:
            UserError: the folder cannot be written.
        """
        for name, content in contents.items():
            _write(self.folder / name, content, "repo")


class HubRepository:
    """A repository of models on the hub; `name` is OWNER/NAME.

    Credentials are those that huggingface_hub finds by itself (`hf auth login`, HF_TOKEN).

    Raises:
        UserError: huggingface_hub is not installed; says how it is.
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
            UserError: the hub does not give it; in its own words.
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
        """See `Repository.read`; of the commit that `sizes` has seen.

        Raises:
            UserError: the hub does not give it; in its own words.
        """
        try:
            path = self._api.hf_hub_download(self.name, name, revision=self._seen)
            return Path(path).read_bytes()
        except Exception as error:
            raise self._failed(error) from error

    def write(self, contents: Mapping[str, bytes], message: str) -> None:
        """See `Repository.write`: one commit; makes the repository if there is none.

        Raises:
            UserError: the hub does not take it; in its own words.
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
        # Somebody else's package: it raises its own errors, those of the network, and others.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return UserError(f"repo: {self.name}: {lines[0] if lines else type(error).__name__}")


def open_repository(repo: str, revision: str | None = None, private: bool = False) -> Repository:
    """The repository that is meant.

    Args:
        repo: OWNER/NAME on the hub; or a folder: file://PATH, or a path that begins with /, . or ~
        revision: branch, tag or commit; None: the main branch
        private: whether nobody else may see a repository that is made

    Raises:
        UserError: it reads like none of these, or needs what is not installed.
    """
    path = repo.removeprefix("file://")
    if path != repo or path.startswith(("/", ".", "~")):
        return FolderRepository(files.user_path(path, "repo"), revision)
    owner, _, name = repo.partition("/")
    if not owner or not name or "/" in name:
        raise UserError(f"repo: '{repo}' is neither OWNER/NAME nor a folder (./FOLDER)")
    return HubRepository(repo, revision, private)


def push(what: str, repository: Repository) -> list[str]:
    """Puts shipped policies into a repository, beside those that it has.

    Args:
        what: a skill, for the policy that comes with tpsrl, or "pretrained" for all of these; a
            folder of shipped policies, or a file
        repository: where to

    Returns:
        The skills.

    Raises:
        UserError: there is no such policy, it is not valid, or it cannot be put there.
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
    # The page that tells of them comes last.
    contents[README] = page({name: cards[name] for name in sorted(cards)}).encode()
    repository.write(contents, f"Policies for {', '.join(skills)}")
    return skills


def pull(repository: Repository, folder: Path, skill: str = "", replace: bool = True) -> list[Path]:
    """Gets shipped policies, all or that of one skill, with their cards; the files.

    All are checked before the first is written. With `replace` they take the place of others.

    Raises:
        UserError: the repository has none, one is not valid, the folder cannot be written, or has
            another policy of a skill.
    """
    held = _held(repository)
    if not held:
        raise UserError("repo: no policy of a skill that is known is there")
    if skill and skill not in held:
        raise UserError(f"repo: no policy for {skill} is there, but for {', '.join(held)}")
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
    """The README.md of a repository: the front matter that the hub reads, and all cards."""
    licences = {card.licence for card in cards.values()}
    licence = "mit" if licences == {"MIT"} else "other"
    tags = ["tpsrl", "robotics", "reinforcement-learning", "embodied-ai", *cards]
    head = ["---", "library_name: tpsrl", f"license: {licence}", "pipeline_tag: robotics", "tags:"]
    front = "\n".join([*head, *(f"- {tag}" for tag in tags), "---"])
    return "\n\n".join([front, *(markdown(card) for card in cards.values())])


def _sources(what: str) -> dict[str, Path]:
    """The files of the policies that are meant, by skill."""
    if what in registry.names():
        return {what: pretrained.find(what)}
    path = pretrained.FOLDER if what == pretrained.WORD else files.user_path(what, "agent")
    if path.is_file():
        return {path.stem: path}
    found = {name: path / pretrained.file_name(name) for name in pretrained.names(path)}
    if not found:
        raise UserError(
            f"hub push: '{what}' is neither a skill nor a folder of shipped policies, which "
            "`tpsrl export` makes"
        )
    return found


def _held(repository: Repository) -> dict[str, int]:
    """The skills that a repository has a policy for, and the bytes of each."""
    there = repository.sizes()
    files_of = {name: pretrained.file_name(name) for name in registry.names()}
    return {name: there[file] for name, file in files_of.items() if file in there}


def _fetched(repository: Repository, skill: str, size: int) -> tuple[bytes, Card]:
    """A policy of a repository, checked, and its card."""
    name = pretrained.file_name(skill)
    shipped.check_size(size, name, "repo")
    content = repository.read(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return content, shipped.check(path, skill, name, "repo")


def _check_same(path: Path, content: bytes) -> None:
    """Refuses to replace another file, which may be an export of one's own."""
    if path.is_file() and path.read_bytes() != content:
        raise UserError(
            f"out: {path} is another file than that of the repository; choose another out, or "
            "replace=true"
        )


def _write(path: Path, content: bytes, field: str) -> None:
    try:
        with files.atomic(path, durable=True) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UserError(f"{field}: cannot write '{path}' ({error.strerror})") from None
