"""Planning domains: those shipped with tpsrl, and the user's own files."""

from pathlib import Path

from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files

DOMAIN = Path(__file__).with_name("domain.pddl")
HABITAT_DOMAIN = Path(__file__).with_name("domain_habitat.pddl")
DEFAULT = "mended"
SHIPPED = (DOMAIN, HABITAT_DOMAIN)
_NAMED = {DEFAULT: DOMAIN, "habitat": HABITAT_DOMAIN}


def find(name: str) -> Path:
    """Returns the file of a domain: `mended`, habitat-lab's own (`habitat`), or a PDDL file.

    Raises:
        UserError: the name is neither one of the shipped domains nor a file.
    """
    if name in _NAMED:
        return _NAMED[name]
    path = files.user_path(name, "domain")
    if not path.is_file() and "/" not in name and path.suffix != ".pddl":
        raise unknown("domain", name, (*_NAMED, "FILE.pddl"))
    try:
        path.stat()
        return files.plain(path).absolute()
    except OSError as error:
        raise UserError(f"domain: cannot read {path}: {error.strerror}") from None
