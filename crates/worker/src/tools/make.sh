# Without a number make runs one job at a time.
jobs=1

