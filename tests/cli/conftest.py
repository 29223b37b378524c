"""The program in this process."""

import subprocess

import pytest

from manyhands.cli import main


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """`cli(*arguments)` runs it in an empty folder: faster than a process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main.run(list(map(str, arguments)))
        printed = capsys.readouterr()
        return subprocess.CompletedProcess([], code, printed.out, printed.err)

    return run
