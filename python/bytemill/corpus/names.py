"""Names of sources as they are stored and displayed: valid text, without credentials."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote_to_bytes

__all__ = ["local_path", "redacted", "shown"]

HIDDEN = "***"
# Query parameters that grant access, and those that change with them: pre-signed URLs of S3,
# Google and CloudFront, shared access signatures of Azure, tokens and keys.
SECRET = (
    r"x-(?:amz|goog|ms|oss|cos|obs)-[\w.-]+"
    r"|[\w.-]*(?:signature|token|secret|passw(?:or)?d|credentials?|jwt|hmac)"
    r"|[\w.-]*(?:api|access|secret|private|shared)[-_]?key(?:[-_]?id)?"
    r"|(?:[\w.-]*[-_.])?auth(?:orization)?|sig|sign|sas|key|pass|pwd|session|policy|expires"
    r"|key-pair-id|se|sp|sv|sr|st|ss|srt|spr|sip|skoid|sktid|skt|ske|sks|skv"
)
# Also matches a percent-encoded URL inside a parameter.
PARAMETER = re.compile(
    rf"((?:[?&;]|%3F|%26)(?:{SECRET})(?:=|%3D))((?:(?!%26)[^&;#\s'\"<>)\]}}])+)", re.IGNORECASE
)
USER = re.compile(r"\b([a-z][a-z0-9+.-]*)://([^/\s?#'\"<>]*)@", re.IGNORECASE)
# In these schemes the part before the @ is a container, not a user.
CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")


def redacted(text: str) -> str:
    """A URL, or any text with URLs in it, without user names, passwords, signatures and tokens.

    URLs that differ only in credentials become equal, so an object is recognized when its URL was
    signed again.

    >>> redacted("https://me:secret@host/a.jsonl?X-Amz-Signature=1f2e&part=7")
    'https://***@host/a.jsonl?X-Amz-Signature=***&part=7'
    """
    if "://" not in text and "%3A%2F%2F" not in text.upper():
        return text

    def without_user(found: re.Match[str]) -> str:
        scheme, user = found.groups()
        if scheme.lower() in CONTAINERS and ":" not in user:
            return found[0]
        return f"{scheme}://{HIDDEN}@"

    return PARAMETER.sub(rf"\1{HIDDEN}", USER.sub(without_user, text))


def shown(path: str) -> str:
    """The name of a local file as it is stored and displayed.

    A name that is not UTF-8 becomes a percent-encoded `file:` URL, which is valid text, lossless,
    and accepted as a corpus.

    >>> shown("data/a.txt"), shown(os.fsdecode(b"data/\\xff.txt"))
    ('data/a.txt', 'file:data/%FF.txt')
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return "file:" + quote(os.fsencode(path))
    return path


def local_path(url: str) -> str:
    """The path of a `file:` URL (RFC 8089); the host is ignored."""
    return os.fsdecode(unquote_to_bytes(re.sub(r"^file:(//[^/]*)?", "", url)))
