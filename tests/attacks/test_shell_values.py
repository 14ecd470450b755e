"""Values that would be commands: whatever a value of a workflow file is, in a shell string it stays one value."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from whywait import ConfigError, Workflow
from whywait.workflow.shell_text import fill_in

# Where a value may stand, and what the shell prints then of the value V.
PLACES = {
    "printf %s {item}": "V",
    'printf %s "{item}"': "V",
    "printf %s '{item}'": "V",
    "printf %s a{item}b": "aVb",
    "printf %s \"a '{item}' b\"": "a 'V' b",
    "printf %s 'a \"{item}\" b'": 'a "V" b',
    'x={item}; printf %s "$x"': "V",
    "printf %s {item} # {item}": "V",
    "# it's {item}\nprintf %s {item}": "V",
    ": '\\' \"\\\"\" \\' ${HOME} $(true {item}); printf %s {item}": "V",
    'for each in {item}; do printf %s "$each"; done': "V",
    "case {item} in *) printf %s '{item}';; esac": "V",
}
HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "; touch pwned #", "'; touch pwned; '", '"; touch pwned; "', "\ntouch pwned\n",
    "'; touch pwned; : '\"; touch pwned; : \"", "\\'; touch pwned #", '\\"; touch pwned #', "& touch pwned &",
    ") ; touch pwned ; (", "EOF\ntouch pwned\n", "}; touch pwned #", "a[$(touch pwned)]", "' $(touch pwned) '",
]  # fmt: skip
PIECES = [
    "{item}", " ", "a", "'", '"', "\\", "$", "(", ")", "`", "\n", "#", ";", "<<EOF\n", "EOF\n", "$((", "))", "${x:-",
    "}", "${x}", "$'", "$(", "echo ", "x=", "case a in a)", ";; esac", "<<<", "&&", "|", "{ ", "[ ", " ]", "!", "1",
    "+", "\t", "$x", "\\\n", "echo '{item}' ", 'echo "{item}" ', "echo {item} ", "'\\'", '"\\""', "# it's\n",
    'echo "$x {item}" ',
]  # fmt: skip
SHELLS = [path for path in ("/bin/sh", "/bin/bash") if Path(path).exists()]  # bash is /bin/sh on many machines


def run(shell, text, folder):
    command = [shell, "-c", text, "sh"]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30)


def tries(count):
    return settings(
        max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )


@tries(40)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12))
@example("a b'c\"$HOME`x`\\\n;#&|<>(){}[]*?~!")
@example("-n")
@example("")
def test_a_value_arrives_as_it_is_wherever_it_stands(tmp_path_factory, value):
    """G5: spaces, quotes, dollars, newlines."""
    folder = tmp_path_factory.getbasetemp()
    for place, printed in PLACES.items():
        for shell in SHELLS:
            done = run(shell, fill_in(place, {"item": value}), folder)
            assert (done.returncode, done.stderr) == (0, b""), place
            assert done.stdout.decode() == printed.replace("V", value), place


@tries(500)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join), st.sampled_from(HOSTILE))
def test_no_value_becomes_a_command_in_any_string(tmp_path_factory, text, value):
    """G5: strings of anything that shells read in a way of their own; where it cannot be quoted it is refused."""
    folder = tmp_path_factory.mktemp("shell", numbered=True)
    with suppress(ConfigError):
        filled = fill_in(f"{text}{{item}}", {"item": value})
        for shell in SHELLS:
            run(shell, filled, folder)
            assert not (folder / "pwned").exists(), (shell, text, filled)


def test_a_file_says_if_its_values_are_syntax(tmp_path):
    """G5: shell = "raw", for a task or for all; whoever means a command by an item is told so."""
    path = tmp_path / "flow.toml"
    path.write_text("""
        [vars]
        flags = "-n 'a  b' | tr a c"
        [task.quoted]
        run = "printf %s {flags}"
        [task.raw]
        run = "printf %s {flags}"
        shell = "raw"
        [task.list]
        run = ["printf", "%s", "{flags}"]
    """)
    result = Workflow.load(path).run()
    assert {name: task.value.stdout for name, task in result.tasks.items()} == {
        "quoted": "-n 'a  b' | tr a c",
        "raw": "-nc  b",
        "list": "-n 'a  b' | tr a c",
    }
    path.write_text('[task.each]\nrun = "{item}"\nforeach = ["true", "echo 1"]\n')
    with pytest.raises(ConfigError, match='"echo 1" would be the name of one program: write shell = "raw"'):
        Workflow.load(path)
    path.write_text('[defaults]\nshell = "raw"\n[task.each]\nrun = "{item}"\nforeach = ["true", "echo 1"]\n')
    assert Workflow.load(path).run().succeeded
    path.write_text('[task.a]\ncall = "os:getcwd"\nshell = "raw"\n')
    with pytest.raises(ConfigError, match="a function has no shell"):
        Workflow.load(path)
