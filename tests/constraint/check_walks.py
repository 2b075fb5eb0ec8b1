#!/usr/bin/env python3
"""Do the texts that grammars let through fit their schemas, as another program judges?

check_walks.py CONSTRAINT_TEST

Runs the walks of CONSTRAINT_TEST over schemas.json (with QUINCE_TEST_MODELS also over real
vocabularies) and validates every text with the Python package jsonschema, formats included. Needs
jsonschema[format]; exit status 1 when a text does not fit.
"""

import json
import os
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.validators import validator_for

# Numbers are decimal: 4.27 is a multiple of 0.01. "30 February" and hours of leap seconds are no matter of form.
UNJUDGED = {"date", "date-time", "time", "duration"}


def main():
    cases = json.loads((Path(__file__).parent / "schemas.json").read_text(), parse_float=Decimal)
    schemas = {case["name"]: case["schema"] for case in cases if "refused" not in case}
    with tempfile.TemporaryDirectory() as folder:
        walks = Path(folder) / "walks.jsonl"
        env = dict(os.environ, QUINCE_WALKS=str(walks))
        subprocess.run([sys.argv[1], "--gtest_filter=Schemas.Walks*"], env=env, check=True)
        lines = [json.loads(line) for line in walks.read_text().split("\n") if line]
    checker = FormatChecker(set(FormatChecker.checkers) - UNJUDGED)
    bad = 0
    for line in lines:
        schema = schemas[line["name"]]
        validator = validator_for(schema, Draft202012Validator)(schema, format_checker=checker)
        errors = list(validator.iter_errors(json.loads(line["text"], parse_float=Decimal)))
        if errors:
            bad += 1
            print(f"{line['vocabulary']}, {line['name']}: {line['text']!r}: {errors[0].message[:200]}")
    print(f"{len(lines)} texts of {len(schemas)} schemas, {bad} do not fit")
    sys.exit(1 if bad or not lines else 0)


if __name__ == "__main__":
    main()
