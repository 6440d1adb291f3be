"""The build backend (PEP 517) with which pip installs this folder. It needs no other package: a wheel is a zip archive of the
modules and three metadata files (packaging.python.org, binary distribution format). The version is that of pyproject.toml.

The setting "tree" names a folder with further files, in the places that they have in the wheel: the library, the command and data.
The wheel is then for this platform only, and for any Python 3. packaging/wheel/build makes such a folder."""
import base64
import hashlib
import os
import pathlib
import re
import sysconfig
import zipfile

FOLDER = pathlib.Path(__file__).parent
PROJECT = (FOLDER / "pyproject.toml").read_text()


def value(key):
    return re.search(rf'^{key} = "(.*)"$', PROJECT, re.M)[1]


NOTES = f"stargrad-{value('version')}.dist-info"
METADATA = (f"Metadata-Version: 2.4\nName: stargrad\nVersion: {value('version')}\nSummary: {value('description')}\n"
            f"Requires-Python: {value('requires-python')}\nRequires-Dist: numpy\n")
MPI = "Requires-Dist: mpich>=4.3\n"      # packaging/wheel/steps builds with its compiler wrapper


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tree = (config_settings or {}).get("tree")
    tag = "py3-none-" + (re.sub(r"[-.]", "_", sysconfig.get_platform()) if tree else "any")
    name = f"stargrad-{value('version')}-{tag}.whl"
    paths = {f"stargrad/{file.name}": file for file in sorted((FOLDER / "stargrad").iterdir()) if file.is_file()}
    if tree:
        paths |= {file.relative_to(tree).as_posix(): file for file in sorted(pathlib.Path(tree).rglob("*")) if file.is_file()}
    files = {path: file.read_bytes() for path, file in paths.items()}
    files[f"{NOTES}/METADATA"] = (METADATA + (MPI if tree else "")).encode()
    files[f"{NOTES}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: stargrad\nRoot-Is-Purelib: {'false' if tree else 'true'}\n"
                               f"Tag: {tag}\n").encode()
    record = f"{NOTES}/RECORD"
    sums = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for path, data in files.items()}
    files[record] = "".join(f"{path},sha256={sums[path]},{len(data)}\n" for path, data in files.items()).encode() + f"{record},,\n".encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if path in paths and os.access(paths[path], os.X_OK) else 0o100644) << 16
            wheel.writestr(info, data)
    return name
