CREATE TABLE run (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  started REAL NOT NULL,
  ended REAL,
  state TEXT NOT NULL,
  plan_digest TEXT NOT NULL,
  cores INTEGER NOT NULL,
  slots INTEGER NOT NULL,
  expected REAL NOT NULL,
  bound REAL NOT NULL
) STRICT;

CREATE TABLE run_package (
  run INTEGER NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  blamed TEXT,
  estimate REAL NOT NULL,
  rank REAL NOT NULL,
  PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_package_state ON run_package (run, state);

CREATE TABLE build (
  number INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  package TEXT NOT NULL,
  version TEXT NOT NULL,
  slot INTEGER NOT NULL,
  key TEXT NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  outcome TEXT NOT NULL,
  failure TEXT,
  reproducible INTEGER
) STRICT;
CREATE INDEX build_package ON build (package, number);
CREATE INDEX build_run ON build (run);

CREATE TABLE stage (
  build INTEGER NOT NULL,
  position INTEGER NOT NULL,
  result TEXT NOT NULL,
  PRIMARY KEY (build, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE duration (
  package TEXT PRIMARY KEY,
  wall REAL NOT NULL,
  cpu REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE current (
  package TEXT PRIMARY KEY,
  build INTEGER NOT NULL,
  recipe_version TEXT NOT NULL,
  revision INTEGER NOT NULL,
  key TEXT NOT NULL,
  key_lines TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE output (
  package TEXT NOT NULL,
  name TEXT NOT NULL,
  output TEXT NOT NULL,
  PRIMARY KEY (package, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE request (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  package TEXT NOT NULL,
  at REAL NOT NULL
) STRICT;

CREATE TABLE plan (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  digest TEXT NOT NULL,
  made REAL NOT NULL,
  expected REAL NOT NULL,
  bound REAL NOT NULL,
  cuts TEXT NOT NULL,
  path TEXT NOT NULL
) STRICT;

CREATE TABLE plan_package (
  name TEXT PRIMARY KEY,
  version TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  blamed TEXT,
  estimate REAL NOT NULL,
  rank REAL NOT NULL,
  dependencies TEXT NOT NULL
) STRICT, WITHOUT ROWID;
