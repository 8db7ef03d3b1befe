"""Every kind of bad delivery: exit code 1, a message of its own that says where, no traceback, and the rows stay."""

from __future__ import annotations

import gzip
import sqlite3

from etl_assets_tests.cli.shell import Shell

HEADER = "id,day,item,amount"
#: What is delivered after a good delivery of the day (DAY stands for it), the error's class, words of its message.
BAD: dict[str, tuple[str | bytes, str, tuple[str, ...]]] = {
    "zero bytes": ("", "ZeroBytes", ("zero bytes",)),
    "blank space": (" \n\n", "ZeroBytes", ("nothing but blank space",)),
    "undeclared cp1252": (b"id,day,item,amount\n1,DAY,caf\xe9,3\n", "Undecodable", ("line 2", "0xE9", "not utf-8")),
    "undeclared utf-16": (f"{HEADER}\n1,DAY,pear,3\n".encode("utf-16"), "Undecodable", ("line 1", "not utf-8")),
    "ragged": (f"{HEADER}\n1,DAY,pear,3\n2,DAY,fig,5,more\n", "RaggedRow", ("line 3", "5 fields", "header has 4")),
    "cut off": (f"{HEADER}\n1,DAY,pear,3\n2,DAY", "RaggedRow", ("line 3", "2 fields")),
    "trailing delimiter": (f"{HEADER},\n1,DAY,pear,3,\n", "BadHeader", ("column 5 is blank",)),
    "doubled header": ("id,day,item,item,amount\n1,DAY,a,b,3\n", "BadHeader", ("'item' twice", "columns 3 and 4")),
    "NUL": (b"id,day,item,amount\n1,DAY,pe\0ar,3\n", "BrokenDelivery", ("line 2", "NUL")),
    "unterminated quote": (f'{HEADER}\n1,DAY,"pear,3\n', "BadQuoting", ("line 2", "never closed")),
    "text after a quote": (f'{HEADER}\n1,DAY,"pe"ar,3\n', "BadQuoting", ("line 2",)),
    "semicolons": ("id;day;item;amount\n1;DAY;pear;3\n", "BadHeader", ("separated by ';'", "','")),
    "missing column": ("id,day,item\n1,DAY,pear\n", "BadHeader", ("lacks 'amount'",)),
    "renamed column": ("id,day,article,amount\n1,DAY,pear,3\n", "BadHeader", ("lacks 'item'", "'article'", "alias")),
    "new column": (f"{HEADER},colour\n1,DAY,pear,3,red\n", "BadHeader", ("'colour'", "new_columns='refuse'")),
    "another day": (f"{HEADER}\n1,DAY,pear,3\n2,2023-05-06,fig,5\n", "ForeignRows", ("line 3", "2023-05-06")),
    "repeated key": (f"{HEADER}\n1,DAY,pear,3\n2,DAY,a,1\n1,DAY,pear,4\n", "DuplicateKey", ("lines 2 and 4", "id=1")),
    "no key": (f"{HEADER}\n,DAY,pear,3\n", "InvalidRows", ("line 2", "id is part of the key and has no value")),
    "empty key": (f'{HEADER}\n1,DAY,"",3\n', "InvalidRows", ("line 2", "item is part of the key")),
    "text for a number": (f"{HEADER}\n1,DAY,pear,three\n", "InvalidRows", ("line 2", "amount: 'three'", "an integer")),
    "too large": (f"{HEADER}\n1,DAY,pear,12345678901234567890\n", "InvalidRows", ("line 2", "more than 64 bits")),
    "fraction": (f"{HEADER}\n1,DAY,pear,3.0\n", "InvalidRows", ("line 2", "'3.0'")),
    "naive time": (f"{HEADER},at\n1,DAY,pear,3,2024-01-01 10:00:00\n", "InvalidRows", ("line 2", "states no offset")),
    "no date": (f"{HEADER}\n1,2024-02-30,pear,3\n", "InvalidRows", ("line 2", "'2024-02-30'", "a date")),
}  # fmt: skip
GZIPPED = {
    "truncated gzip": gzip.compress(f"{HEADER}\n1,DAY,pear,3\n".encode() * 99)[:-9],
    "not gzip": f"{HEADER}\n1,DAY,pear,3\n".encode(),
}


def test_each_kind_of_bad_delivery_is_refused_with_its_own_message_and_the_rows_stay(shell: Shell) -> None:
    days = {kind: f"2024-01-{number:02}" for number, kind in enumerate([*BAD, *GZIPPED], start=1)}
    for day in days.values():
        shell.deliver(day, f"{HEADER}\n1,{day},pear,3\n2,{day},fig,\n".replace(",1,", f"{day[-2:]},"))
    for number, day in enumerate(days.values()):
        shell.deliver(day, f"{HEADER}\n{number},{day},pear,3\n{number},{day},fig,NA\n")
    good = shell("run", "orders", "--pending", "--json")
    assert good.code == 0, good.err
    before = contents(shell)
    assert len(before["orders"]) == 2 * len(days)
    for kind, (content, _, _) in BAD.items():
        raw = content.encode() if isinstance(content, str) else content
        shell.deliver(days[kind], raw.replace(b"DAY", days[kind].encode()), "2.csv")
    for kind, raw in GZIPPED.items():
        shell.deliver(days[kind], raw, "2.csv.gz")
    answer = shell("run", "orders", "--pending", "--json")
    assert answer.code == 1
    errors = {b["scope"]: b["error"] for b in answer.document["batches"]}
    assert {b["status"] for b in answer.document["batches"]} == {"refused"}
    for kind, (_, name, words) in {
        **BAD,
        **dict.fromkeys(GZIPPED, (b"", "BrokenDelivery", ("not a whole gzip file",))),
    }.items():
        message = errors[days[kind]]
        assert message.startswith(f"{name}: "), (kind, message)
        assert f"{days[kind]}/2.csv" in message, (kind, message)
        for word in words:
            assert word in message, (kind, message)
    assert len({m.split(": ", 2)[2] for m in errors.values()}) >= len(BAD)
    assert contents(shell) == before
    listed = shell("deliveries", "orders", "--json").document["deliveries"]
    states = {d["scope"]: d["state"] for d in listed if d["name"] != "1.csv"}
    assert states == dict.fromkeys(days.values(), "needs attention")  # the same bytes would be refused again


def contents(shell: Shell) -> dict[str, list[tuple]]:
    connection = sqlite3.connect(shell.warehouse)
    try:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)
            for table in ("orders", "etl_batch", "etl_partition")
        }
    finally:
        connection.close()


def test_what_may_look_odd_and_is_right_is_loaded(shell: Shell) -> None:
    kinds = {
        "bom": "\ufeffid,day,item,amount\r\n1,DAY,pear,3\r\n".encode(),
        "reordered": b"amount,item,day,id\n3,pear,DAY,1\n",
        "blank last lines": b"id,day,item,amount\n1,DAY,pear,3\n\n\n",
        "no line end": b"id,day,item,amount\n1,DAY,pear,3",
        "quoted": b'"id","day","item","amount"\n"1","DAY","pear","3"\n',
        "missing tokens": b"id,day,item,amount\n1,DAY,pear,NA\n",
        "header only": b"id,day,item,amount\n",
    }
    days = {kind: f"2024-01-{number:02}" for number, kind in enumerate(kinds, start=1)}
    for number, (kind, raw) in enumerate(kinds.items()):
        own = raw.replace(b"DAY", days[kind].encode()).replace(b"1,2024", b"%d,2024" % number)
        own = own.replace(b'"1","2024', b'"%d","2024' % number).replace(b",1\n", b",%d\n" % number)
        shell.deliver(days[kind], own)
    shell.deliver("2024-01-20", gzip.compress(b"id,day,item,amount\n99,2024-01-20,pear,3\n"), "1.csv.gz")
    answer = shell("run", "orders", "--pending", "--json")
    assert answer.code == 0, answer.err
    assert contents(shell)["orders"] == sorted(
        [
            *((n, day, "pear", None if kind == "missing tokens" else 3, None, n + 1, n + 1)
              for n, (kind, day) in enumerate(days.items()) if kind != "header only"),
            (99, "2024-01-20", "pear", 3, None, 8, 8),
        ],
        key=repr,
    )  # fmt: skip
    empty = next(b for b in answer.document["batches"] if b["scope"] == days["header only"])
    assert (empty["status"], empty["counts"]["source"]) == ("committed", 0)
