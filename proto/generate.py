"""Generates the Python that is committed beside the contract. `--check` tells whether it is what the contract says.

Server and raw clients: `proto/gen/python` by grpc_tools.protoc, and the contract described, with its comments.
SDK messages: `turnlog_client/messages` by betterproto2.
"""

import filecmp
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

PROTO = Path(__file__).resolve().parent
GENERATED = PROTO / "gen" / "python"
MESSAGES = PROTO.parent / "clients" / "python" / "turnlog_client" / "messages"
OURS = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("turnlog/**/*.proto"))
SDK = [name for name in OURS if "/bench/" not in name]
VENDORED = ["buf/validate/validate.proto"]


def protoc(*arguments: str) -> None:
    """Runs protoc over the contract with its vendored and well-known imports."""
    well_known = str(files("grpc_tools") / "_proto")
    roots = [f"-I{PROTO}", f"-I{PROTO / 'vendor'}", f"-I{well_known}"]
    # protoc finds the betterproto2 plug-in beside this interpreter.
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *roots, *arguments], check=True, env=env)


def generate(generated: Path, messages: Path) -> None:
    """Writes both trees."""
    for folder in (generated, messages):
        folder.mkdir(parents=True, exist_ok=True)
    protoc(f"--python_out={generated}", f"--pyi_out={generated}", *OURS, *VENDORED)
    protoc(f"--grpc_python_out={generated}", *[name for name in OURS if name.endswith("_service.proto")])
    # With comments, so that reflection reads like documentation.
    described = generated / "turnlog" / "contract.binpb"
    protoc("--include_source_info", f"--descriptor_set_out={described}", *SDK)
    protoc(f"--python_betterproto2_out={messages}", "--python_betterproto2_opt=client_generation=none", *SDK)


def differences(ours: Path, fresh: Path) -> list[str]:
    """The files that are missing, left over, or not the same to the byte."""
    names = {
        str(path.relative_to(root))
        for root in (ours, fresh)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted(
        name
        for name in names
        if not ((ours / name).exists() and (fresh / name).exists())
        or not filecmp.cmp(ours / name, fresh / name, shallow=False)
    )


def main() -> int:
    if "--check" not in sys.argv:
        generate(GENERATED, MESSAGES)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generated, messages = Path(scratch, "generated"), Path(scratch, "messages")
        generate(generated, messages)
        stale = differences(GENERATED, generated) + differences(MESSAGES, messages)
    for name in stale:
        print(f"not what the contract says: {name} (run `make generate`)")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
