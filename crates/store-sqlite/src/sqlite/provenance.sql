-- Who built the current outputs of a package, as its worker signed it; `statement` is compressed with zstd. Programs of
-- format 6 may still write: outputs that they record have no provenance, and a row of another build does not count.
CREATE TABLE provenance (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  build INTEGER NOT NULL,
  worker TEXT NOT NULL,
  pool TEXT NOT NULL,
  key TEXT NOT NULL,
  signature TEXT NOT NULL,
  statement BLOB NOT NULL,
  PRIMARY KEY (scope, package)
) WITHOUT ROWID;
