"""Samples the networks of commands.csv: a report per case, FOLDER/TABLE/CASE.csv; those that are there are kept.

    python measure.py SIGPROP FOLDER TABLE ...
"""

import csv
import pathlib
import subprocess
import sys

binary, folder, *tables = sys.argv[1:]
with open(pathlib.Path(__file__).with_name("commands.csv"), newline="") as file:
    chosen = [row for row in csv.DictReader(file) if row["table"] in tables]
for row in chosen:
    report = pathlib.Path(folder, row["table"], row["case"] + ".csv")
    if report.exists():
        continue
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [binary, "validate", *row["flags"].split(), "--replicates", row["replicates"]]
    if row["table"] == "narrow":
        command += ["--sites", "all", "--weights"]
    output = subprocess.run([*command, "--isolated", "-q", "--format", "csv"], check=True, stdout=subprocess.PIPE)
    whole = report.with_suffix(".part")
    whole.write_bytes(output.stdout)
    whole.rename(report)
