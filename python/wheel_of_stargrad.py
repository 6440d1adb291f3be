"""The build backend (PEP 517) with which pip installs this folder. It needs no other package: a wheel is a zip archive of the
modules and three metadata files (packaging.python.org, binary distribution format). The version is that of pyproject.toml."""
import base64
import hashlib
import pathlib
import re
import zipfile

FOLDER = pathlib.Path(__file__).parent
PROJECT = (FOLDER / "pyproject.toml").read_text()


def value(key):
    return re.search(rf'^{key} = "(.*)"$', PROJECT, re.M)[1]


NOTES = f"stargrad-{value('version')}.dist-info"
METADATA = (f"Metadata-Version: 2.1\nName: stargrad\nVersion: {value('version')}\nSummary: {value('description')}\n"
            f"Requires-Python: {value('requires-python')}\nRequires-Dist: numpy\n")
WHEEL = "Wheel-Version: 1.0\nGenerator: stargrad\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"stargrad-{value('version')}-py3-none-any.whl"
    files = {f"stargrad/{file.name}": file.read_bytes() for file in sorted((FOLDER / "stargrad").iterdir()) if file.is_file()}
    files |= {f"{NOTES}/METADATA": METADATA.encode(), f"{NOTES}/WHEEL": WHEEL.encode()}
    record = f"{NOTES}/RECORD"
    sums = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for path, data in files.items()}
    files[record] = "".join(f"{path},sha256={sums[path]},{len(data)}\n" for path, data in files.items()).encode() + f"{record},,\n".encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name
