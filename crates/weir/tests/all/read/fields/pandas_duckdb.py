"""Reads CSV and JSON files of flow records with pandas and DuckDB, as a user would: without options,
and with the nullable types of pandas. Reads stores with DuckDB.

Arguments: files, csv or json by their ending, and folders of stores. Prints a JSON object per file and program: rows, the
kind of each column that has values, the columns with a missing value, and sums; with nullable types
also the columns of integers with a value that is not that of the file.
"""

import csv
import json
import sys

import duckdb
import pandas

SUMS = ["packets", "bytes", "l2_bytes", "fwd_packets", "rev_packets"]
KINDS = {"i": "integer", "u": "integer", "f": "number", "M": "time", "b": "boolean"}


def table_of(path, **options):
    if path.endswith(".csv"):
        return pandas.read_csv(path, parse_dates=["start_time", "end_time"], **options)
    return pandas.read_json(path, lines=True, **options)


def with_pandas(path):
    return summary(table_of(path))


def with_nullable_types(path):
    table = table_of(path, dtype_backend="numpy_nullable")
    with open(path) as file:
        rows = list(csv.DictReader(file)) if path.endswith(".csv") else [json.loads(line) for line in file]

    def number(value):
        # Columns of means may have whole numbers only.
        return None if value in ("", None) else float(value) if "." in str(value) else int(value)

    def differs(name):
        found = [None if pandas.isna(value) else int(value) for value in table[name]]
        return found != [number(row[name]) for row in rows]

    integers = [name for name in table if str(table[name].dtype) == "Int64"]
    return {**summary(table), "wrong": [name for name in integers if differs(name)]}


def summary(table):
    return {
        "rows": len(table),
        "kinds": {name: KINDS.get(table[name].dtype.kind, "text") for name in table if table[name].notna().any()},
        "missing": [name for name in table if table[name].isna().any()],
        "sums": {name: int(table[name].sum()) for name in SUMS},
    }


def with_duckdb(path):
    def kind(name):
        for prefix, kind in [("TIMESTAMP", "time"), ("DOUBLE", "number"), ("FLOAT", "number"), ("VARCHAR", "text")]:
            if name.startswith(prefix):
                return kind
        return "integer" if name.endswith("INT") or name == "INTEGER" else name

    source = f"read_parquet('{path}/*/*/*.parquet', hive_partitioning = false)" if path.endswith(".store") else f"'{path}'"
    types = {row[0]: row[1] for row in duckdb.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    # Names without quotes: none is a word of SQL.
    rows, *counts = duckdb.sql(f"SELECT count(*), {', '.join(f'count({name})' for name in types)} FROM {source}").fetchall()[0]
    sums = duckdb.sql(f"SELECT {', '.join(f'sum({name}) AS {name}' for name in SUMS)} FROM {source}").fetchall()[0]
    count = dict(zip(types, counts))
    return {
        "rows": rows,
        "kinds": {name: kind(type) for name, type in types.items() if count[name]},
        "missing": [name for name in types if count[name] < rows],
        "sums": {name: int(sum) for name, sum in zip(SUMS, sums)},
    }


PROGRAMS = {"pandas": with_pandas, "pandas, nullable": with_nullable_types, "duckdb": with_duckdb}
for path in sys.argv[1:]:
    of_path = {"duckdb": with_duckdb} if path.endswith(".store") else PROGRAMS
    for program, read in of_path.items():
        print(json.dumps({"path": path, "program": program, **read(path)}))
