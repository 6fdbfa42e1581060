"""Reads reports as the services that take them do; fails if one of them would not.

usage: reports.py SARIF_SCHEMA FILE...
"""

import json
import sys

import jsonschema
import junitparser

schema = json.load(open(sys.argv[1]))
for path in sys.argv[2:]:
    if path.endswith(".sarif"):
        jsonschema.validate(json.load(open(path)), schema)
        continue
    report = junitparser.JUnitXml.fromfile(path)
    cases = [case for suite in report for case in suite]
    failed = sum(any(isinstance(result, junitparser.Failure) for result in case.result) for case in cases)
    assert len(cases) > 0, f"{path}: no case"
    assert (report.tests, report.failures) == (len(cases), failed), f"{path}: {report.tests}, {report.failures}"
print(len(sys.argv) - 2)
