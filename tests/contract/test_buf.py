"""The contract as `buf` judges it, and what is made of it: the committed image, the generated code, the changelog."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import buf.validate.validate_pb2  # noqa: F401  so that its options are known, and are compared
from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "proto" / "image.binpb"
CONTRACT = ROOT / "proto" / "gen" / "python" / "turnlog" / "contract.binpb"
OURS = ("--path", "proto/turnlog/v1", "--path", "proto/turnlog/runner")
BUF = Path(sys.executable).with_name("buf")
RENEW = f"""the contract is not what proto/image.binpb says. If that is meant:
  buf build --exclude-source-info -o proto/image.binpb {" ".join(OURS)}
and add a line to CHANGELOG.md under "Unreleased" that says what changed, with `{{}}`."""


def judged(*arguments):
    done = subprocess.run([BUF, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def bare(file):
    """Only what reaches a client: no comments, and nothing that is buf's own."""
    file.ClearField("source_code_info")
    file.DiscardUnknownFields()
    return file


def described(path):
    files = FileDescriptorSet.FromString(path.read_bytes()).file
    return {file.name: bare(file) for file in files if file.name.startswith("turnlog/")}


def digest(files):
    """What a line of the changelog names."""
    whole = b"".join(file.SerializeToString(deterministic=True) for _, file in sorted(files.items()))
    return hashlib.sha256(whole).hexdigest()[:12]


def test_lint():
    """Every service, RPC, message, field and enum value has a comment; names are as they should be."""
    judged("lint")


def test_format():
    judged("format", "-d", "--exit-code", *OURS)


def test_nothing_that_clients_rely_on_is_broken(tmp_path):
    now = tmp_path / "now.binpb"
    judged("build", "--exclude-source-info", "-o", str(now), *OURS)
    # An image has no module to take the rules from.
    rules = json.dumps({"version": "v2", "breaking": {"use": ["FILE"]}})
    judged("breaking", str(now), "--against", str(IMAGE), "--config", rules)


def test_the_image_is_this_contract():
    ours, image = described(CONTRACT), described(IMAGE)
    changed = sorted(name for name in ours.keys() | image.keys() if ours.get(name) != image.get(name))
    assert not changed, f"{changed}: {RENEW.format(digest(ours))}"


def test_the_changelog_tells_of_the_newest_change():
    unreleased = (ROOT / "CHANGELOG.md").read_text("utf-8").partition("## Unreleased\n")[2].partition("\n## ")[0]
    now = digest(described(CONTRACT))
    assert now in unreleased, RENEW.format(now)


def test_what_is_generated_is_what_the_contract_says():
    done = subprocess.run(
        [sys.executable, "proto/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
