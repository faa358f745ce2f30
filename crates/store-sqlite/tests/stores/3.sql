-- A store of format 3 with rows of every kind, made by the program of commit 3ad06da.
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
CREATE TABLE imported_duration (
  package TEXT PRIMARY KEY,
  wall REAL NOT NULL,
  cpu REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE measured (
  package TEXT PRIMARY KEY,
  builds TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 3;

INSERT INTO run VALUES (3, 1000.5, 1100.25, 'finished', 'aa-1', 8, 4, 90.0, 80.0);
INSERT INTO run VALUES (4, 2000.0, NULL, 'running', 'bb-3', 8, 4, 60.0, 50.0);
INSERT INTO run_package VALUES (3, 'acl', '2.3-1', 'failed', 'build failed: cc: no such file', NULL, 30.0, 70.0);
INSERT INTO run_package VALUES (3, 'attr', '2.5-1', 'built', 'first build', NULL, 40.0, 70.0);
INSERT INTO run_package VALUES (3, 'rsync', '3.2-1', 'blocked', 'it needs acl, which is failed', 'acl', 20.0, 20.0);
INSERT INTO run_package VALUES (3, 'odd', '1', 'left-out', 'odd needs what is not there
  nothing offers it', NULL, 0.0, 0.0);
INSERT INTO run_package VALUES (4, 'acl', '2.3-2', 'building', 'recipe acl is 2.3-2 and was 2.3-1', NULL, 30.0, 30.0);
INSERT INTO build VALUES (5, 3, 'attr', '2.5-1+bk1', 0, 'k1', 1001.0, 1041.0, 'built', NULL, 1);
INSERT INTO build VALUES (6, 3, 'acl', '2.3-1+bk1', 1, 'k2', 1042.0, 1072.0, 'failed',
  '{"stage":"build","kind":"command","message":"cc: no such file","line_number":7,"lines":["cc: no such file"]}', NULL);
INSERT INTO build VALUES (7, 4, 'acl', '2.3-2+bk1', 2, 'k3', 2001.0, NULL, 'building', NULL, NULL);
INSERT INTO stage VALUES (5, 0,
  '{"stage":"unpack","started_seconds":1001.0,"wall_seconds":2.0,"cpu_seconds":1.0,"memory_peak_bytes":5,"is_ok":true,"log":null,"left_behind":[]}');
INSERT INTO stage VALUES (5, 1,
  '{"stage":"build","started_seconds":1003.0,"wall_seconds":38.0,"cpu_seconds":76.0,"memory_peak_bytes":9,"is_ok":true,"log":"logs/3/attr/5-build.log","left_behind":["sleep"]}');
INSERT INTO duration VALUES ('attr', 40.0, 77.0);
INSERT INTO current VALUES ('attr', 5, '2.5-1', 1, 'k1', 'format kilnyard-key 1
recipe attr 2.5-1');
INSERT INTO output VALUES ('attr', 'libattr1',
  '{"name":"libattr1","version":"2.5-1+bk1","architecture":"amd64","file":"libattr1.deb","sha256":"s1","size_bytes":7,"content":"c1","description":"Package: libattr1\n"}');
INSERT INTO output VALUES ('attr', 'libattr1-dev',
  '{"name":"libattr1-dev","version":"2.5-1+bk1","architecture":"amd64","file":"libattr1-dev.deb","sha256":"s2","size_bytes":8,"content":"c2","description":"Package: libattr1-dev\n"}');
INSERT INTO request VALUES (2, 'retry', 'acl', 1500.0);
INSERT INTO plan VALUES (1, 'cc-7', 1999.0, 60.0, 50.0, 'acl is built before attr', 'acl rsync');
INSERT INTO plan_package VALUES ('acl', '2.3-2', 'ready', 'recipe acl is 2.3-2 and was 2.3-1', NULL, 30.0, 30.0, 'attr zlib');
INSERT INTO imported_duration VALUES ('attr', 9.0, 9.0);
INSERT INTO imported_duration VALUES ('zlib', 4.0, 3.0);
INSERT INTO measured VALUES ('attr',
  '[{"cores":8,"stages":[{"wall_seconds":38.0,"cpu_seconds":76.0}],"memory_peak_bytes":9,"work_bytes":3,"disk_bytes":2,"is_out_of_memory":false}]');
