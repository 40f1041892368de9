"""Builds the wheel and the tarball, installs each in a clean place, uses them there, and measures their size.

Takes a folder for everything that it makes. Nothing is published.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The bundle of the whole TypeScript package at most, in bytes, compressed.
LARGEST_BUNDLE = 12 * 1024


def run(*words: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


def check_python(folder: Path) -> None:
    out = folder / "python"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT / "sdk/python")
    (wheel,) = out.glob("*.whl")
    (source,) = out.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("sluicegate/py.typed", "sluicegate/CHANGELOG.md", "licenses/LICENSE"):
        assert any(name.endswith(wanted) for name in names), f"the wheel has no {wanted}"
    with tarfile.open(source) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())
    venv = out / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "--quiet", wheel)
    program = """
import sluicegate
from sluicegate import BlockedError, FakeGateway
fake = FakeGateway().allow("email.search", [])
client = fake.client()
assert client.email.search(query="x").result == []
try:
    client.call("git.push")
except BlockedError as no:
    print(sluicegate.__version__, no.code)
"""
    print("wheel:", wheel.name, run(venv / "bin/python", "-c", program, cwd=out))


def check_typescript(folder: Path) -> None:
    out = folder / "typescript"
    out.mkdir(parents=True)
    tarball = out / run("npm", "pack", "--silent", "--pack-destination", out, cwd=ROOT / "sdk/typescript").splitlines()[-1]
    with tarfile.open(tarball) as archive:
        names = archive.getnames()
    for wanted in ("LICENSE", "CHANGELOG.md", "README.md", "dist/index.js", "dist/index.d.ts"):
        assert f"package/{wanted}" in names, f"the tarball has no {wanted}"
    assert not any("test" in name or "node_modules" in name for name in names), names
    (out / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--no-audit", "--no-fund", "--offline", tarball, cwd=out)
    program = """
import { SluiceClient, UnavailableError } from "sluicegate";
import { verifyWebhook } from "sluicegate/webhooks";
const client = new SluiceClient({ url: "http://127.0.0.1:9", key: "sga_x", retries: { attempts: 1 } });
const error = await client.whoami().catch((caught) => caught);
console.log(error instanceof UnavailableError, typeof verifyWebhook);
"""
    (out / "use.mjs").write_text(program)
    print("tarball:", tarball.name, run("node", "use.mjs", cwd=out))
    bundle = out / "bundle.js"
    entry = out / "node_modules/sluicegate/dist/index.js"
    run("esbuild", entry, "--bundle", "--minify", "--format=esm", "--platform=neutral", f"--outfile={bundle}")
    size = len(gzip.compress(bundle.read_bytes(), 9))
    print(f"bundle: {size} bytes compressed, at most {LARGEST_BUNDLE}")
    assert size <= LARGEST_BUNDLE


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    check_python(folder)
    check_typescript(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
