#!/usr/bin/python3
"""Compares an NBD export with a model of it in memory: model.py SOCKET SIZE_BYTES OPERATIONS [SEED]

Random requests of all kinds go over two connections in turn; each read is compared with the model, and so are the whole
export and its map at the end. Exit codes: 0, equal; 1, not equal. It needs libnbd's module (Debian: python3-libnbd).
"""

import random
import sys

import nbd

LENGTH_MAX = 100_000


def main():
    socket, size, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    choose = random.Random(seed)
    model = bytearray(size)
    clients = []
    for _ in range(2):
        client = nbd.NBD()
        client.add_meta_context("base:allocation")
        client.connect_unix(socket)
        clients.append(client)
    assert clients[0].get_size() == size and clients[0].can_multi_conn() and clients[0].can_meta_context("base:allocation")
    for start in range(0, size, 1 << 20):
        model[start : start + (1 << 20)] = clients[0].pread(min(1 << 20, size - start), start)

    def differs(what, offset, length):
        sys.exit(f"seed {seed}: {what} of {length} bytes at {offset} differs")

    for number in range(operations):
        client = clients[number % 2]
        length = choose.choice([512, 4096, choose.randint(1, 20_000), choose.randint(1, LENGTH_MAX)])
        offset = choose.randrange(size)
        if choose.random() < 0.6:
            offset -= offset % 4096
        length = min(length, size - offset)
        end = offset + length
        kind = choose.choices(["read", "write", "zero", "trim", "flush", "map"], [30, 50, 6, 6, 4, 4])[0]
        if kind == "read":
            if client.pread(length, offset) != model[offset:end]:
                differs("a read", offset, length)
        elif kind == "write":
            data = choose.randbytes(length)
            client.pwrite(data, offset, choose.choice([0, 0, 0, nbd.CMD_FLAG_FUA]))
            model[offset:end] = data
        elif kind == "zero":
            client.zero(length, offset, choose.choice([0, nbd.CMD_FLAG_NO_HOLE]))
            model[offset:end] = bytes(length)
        elif kind == "trim":
            client.trim(length, offset)
            # Whole blocks are zero from then on; the rest stays.
            first, last = -(-offset // 4096) * 4096, end // 4096 * 4096
            if first < last:
                model[first:last] = bytes(last - first)
        elif kind == "flush":
            client.flush()
        else:
            check_map(client, model, offset, length, differs)
    for start in range(0, size, 1 << 20):
        if clients[0].pread(min(1 << 20, size - start), start) != model[start : start + (1 << 20)]:
            differs("the end", start, 1 << 20)
    print(f"{operations} operations, equal")


def check_map(client, model, offset, length, differs):
    """Places that the export calls zero are zero."""
    extents = []
    client.block_status(length, offset, lambda context, at, entries, error: extents.append((at, entries)) or 0)
    at = offset
    for _, entries in extents:
        for bytes_long, flags in zip(entries[::2], entries[1::2]):
            end = min(at + bytes_long, offset + length)
            if flags & 2 and any(model[at:end]):
                differs("a place called zero", at, end - at)
            at = end
    if at == offset:
        differs("an empty map", offset, length)


main()
