"""Shortens reports of `sigprop validate` to what is kept here: means, standard errors, numbers of networks.

    python keep.py OUT.csv IN.csv ...          cells.csv of a suite; several runs become one, weighted by their networks
    python keep.py --cases OUT.csv FOLDER ...  NAME.csv (--format csv) of one network each, NAME in the column `case`
    python keep.py --only variance,... ...     these quantities alone

A file that was shortened can be IN again, beside later runs. A blank field repeats the line above, within a case.

    observed    Σ n x / Σ n        x: observed in n networks
    std_error   √(Σ (n s)²) / Σ n  s: its standard error
"""

import csv
import pathlib
import sys
from decimal import Decimal

BEFORE = ["group", "case", "site", "quantity"]
ERROR_DIGITS, MOST_DIGITS = 3, 7


def rows(path, case):
    """(group, case, site, quantity) and (observed, std_error, networks) of every line."""
    above = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            row |= {key: above[key] for key in [*BEFORE, "replicates"] if above and key in row and not row[key]}
            above = row
            if row["observed"]:
                names = {"group": "", "case": case} | row
                yield tuple(names[key] for key in BEFORE), row


def run(paths, cases):
    """The numbers of one run. A suite of components has a mean three times, times 1/f, 1 and f: the second counts. It may
    have a cell twice, of which the first counts."""
    lines = {}
    for path in paths:
        for key, row in rows(path, path.stem if cases else ""):
            lines.setdefault(key, []).append(row)
    chosen = (seen[1] if len(seen) > 2 else seen[0] for seen in lines.values())
    numbers = ((row["observed"], row["std_error"] or "NaN", row["replicates"]) for row in chosen)
    return dict(zip(lines, ([Decimal(number) for number in row] for row in numbers)))


def pooled(runs):
    together = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        seen = [run[key] for run in runs if key in run]
        networks = sum(n for _, _, n in seen)
        mean = sum(n * x for x, _, n in seen) / networks
        error = sum((n * s) ** 2 for _, s, n in seen).sqrt() / networks
        together[key] = mean, error, networks
    return together


def short(number, digits):
    """So many significant digits, in the shorter notation."""
    if number == 0:
        return "0"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    scientific = f"{mantissa}e{int(exponent)}"
    plain = f"{Decimal(scientific):f}" if abs(int(exponent)) < 9 else scientific
    return min(plain, scientific, key=len)


def numbers(mean, error):
    """The error to three digits, the mean as far as the error."""
    if error.is_nan() or error == 0:
        return short(mean, MOST_DIGITS), "" if error.is_nan() else "0"
    digits = ERROR_DIGITS + (mean.adjusted() - error.adjusted() if mean else 0)
    return short(mean, max(1, min(digits, MOST_DIGITS))), short(error, ERROR_DIGITS)


def write(path, table):
    before = [key for place, key in enumerate(BEFORE) if any(name[place] for name in table)]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*before, "observed", "std_error", "replicates"])
        case, above = None, ()
        for name, (mean, error, networks) in table.items():
            fields = [name[BEFORE.index(key)] for key in before] + [str(networks)]
            if name[:2] != case:
                case, above = name[:2], [None] * len(fields)
            *left, count = ["" if field == known else field for field, known in zip(fields, above)]
            writer.writerow([*left, *numbers(mean, error), count])
            above = fields


def main(arguments):
    cases, only = False, []
    while arguments[0].startswith("--"):
        flag = arguments.pop(0)
        if flag == "--only":
            only = arguments.pop(0).split(",")
        elif flag == "--cases":
            cases = True
        else:
            sys.exit(__doc__)
    out, *sources = [pathlib.Path(argument) for argument in arguments]
    runs = [run(sorted(source.glob("*.csv")) if cases and source.is_dir() else [source], cases and source.is_dir()) for source in sources]
    table = pooled(runs)
    write(out, {key: row for key, row in table.items() if not only or key[-1] in only})


main(sys.argv[1:])
