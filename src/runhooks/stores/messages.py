"""What is said of the errors of the libraries beneath: the cause, in a line."""

from __future__ import annotations

import re

from runhooks.stores.urls import masked

_MOST_SHOWN = 300

#: What S3 and its like answer.
_CODE = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*))?")
#: What obstore says before the cause, and what it adds for those who look for its own errors.
_PREFIX = re.compile(
    r"(?s)(?:Generic \w+ error: )?(?:.*?: )?Error performing (\w+ \S+) in \S+?"
    r"(?:, after \d+ retries.*?)? - (?:HTTP error: )?"
)
_DEBUG = "\n\nDebug source:"
#: The causes that only its debugging text has.
_TOLD = re.compile(r'(?:message|error): "([^"]+)"')
_SHORT_CAUSES = {
    "TimedOut": "no answer in time",
    "kind: Timeout": "no answer in time",
    "IncompleteMessage": "the connection was closed without an answer",
    "ConnectionReset": "the connection was closed",
}
#: What is raised where fsspec is asked for them.
NO_CREDENTIALS = "there are no credentials"
#: Where obstore asks for credentials, once it has found none: services of the clouds' own machines.
_ASKS_FOR_CREDENTIALS = re.compile(
    rf"{NO_CREDENTIALS}|performing token request|MissingAccount|"
    r"performing \w+ http://(?:169\.254\.|[^/]+/(?:latest/(?:api/token|meta-data)|computeMetadata)\b)"
)
_SAY_WHO = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install s3fs and set AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or a connection string",
}
_SAY_WHO |= {
    alias: _SAY_WHO[scheme]
    for alias, scheme in {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}.items()
}


def lacks_credentials(error: BaseException) -> bool:
    """Return whether nobody has said who the user is: a store has not even been asked."""
    if type(error).__name__.startswith(("NoCredentials", "PartialCredentials")):
        return True
    is_of_obstore = type(error).__module__.startswith("obstore")
    return is_of_obstore and _ASKS_FOR_CREDENTIALS.search(str(error)) is not None


def no_credentials(scheme: str, error: BaseException) -> str:
    """Return what to do about ``error``, which is that there are no credentials."""
    fix = _SAY_WHO.get(scheme, "say who you are where its library looks for it")
    return f"no credentials for {scheme}:// were found: {fix} ({shortened(error)})"


def shortened(error: BaseException) -> str:
    """Return the cause in what ``error`` says."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text, _, debug = masked(text).partition(_DEBUG)
    if code := _CODE.search(text):
        told = (code[2] or "").partition("\n")[0].strip(" .")  # of several lines on Azure
        return f"{code[1]}: {told}" if told else code[1]
    if found := _PREFIX.match(text):
        text = f"{found[1]}: {_cause(debug) or text[found.end() :]}"
    text = " ".join(text.split()).rstrip(".: ") or type(error).__name__
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _cause(debug: str) -> str:
    """The cause that obstore tells in its debugging text alone; ``""`` if it is no such error."""
    if "reqwest::Error" not in debug:
        return ""
    for sign, cause in _SHORT_CAUSES.items():
        if sign in debug:
            return cause
    told: list[str] = _TOLD.findall(debug)
    return told[-1] if told else ""
