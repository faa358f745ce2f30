-- Adds scopes, leads, attempts and events.

-- The only row of the store. Its ids are made here, once, and never change. oldest_writer: the first format whose
-- programs may write this store. A step that only adds does not change it; a step that removes something sets it to
-- its own format. epoch: the number of the latest lead. builds: the highest build number ever used.
CREATE TABLE store (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  farm TEXT NOT NULL,
  yard TEXT NOT NULL,
  oldest_writer INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  builds INTEGER NOT NULL
) STRICT;
INSERT INTO store
SELECT 1, lower(hex(randomblob(16))), lower(hex(randomblob(16))), 6, 0, coalesce(max(number), 0) FROM build;

-- What rows belong to. All existing rows belong to the first scope, which gets the target of the yard that opens the
-- store.
CREATE TABLE scope (
  number INTEGER PRIMARY KEY,
  farm TEXT NOT NULL,
  yard TEXT NOT NULL,
  target TEXT NOT NULL,
  UNIQUE (farm, yard, target)
) STRICT;

ALTER TABLE run ADD COLUMN scope INTEGER NOT NULL DEFAULT 1;
ALTER TABLE build ADD COLUMN scope INTEGER NOT NULL DEFAULT 1;
ALTER TABLE request ADD COLUMN scope INTEGER NOT NULL DEFAULT 1;
-- The packages of a run and the stages of a build have the scope of the run or build.

ALTER TABLE build ADD COLUMN attempt TEXT;
ALTER TABLE build ADD COLUMN worker TEXT;
ALTER TABLE build ADD COLUMN cores INTEGER NOT NULL DEFAULT 1;
UPDATE build SET cores = coalesce((SELECT cores FROM run WHERE run.number = build.run), 1);
CREATE UNIQUE INDEX build_attempt ON build (attempt);
DROP INDEX build_package;
CREATE INDEX build_package ON build (scope, package, number);

-- Reasons as data, in addition to their text. Older rows have only the text, and a program that does not know a kind of
-- reason shows the text.
ALTER TABLE run_package ADD COLUMN why TEXT;

-- Rows about a package become rows for each target.
CREATE TABLE scoped_duration (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  wall REAL NOT NULL,
  cpu REAL NOT NULL,
  PRIMARY KEY (scope, package)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_duration SELECT 1, package, wall, cpu FROM duration;
DROP TABLE duration;
ALTER TABLE scoped_duration RENAME TO duration;

CREATE TABLE scoped_imported_duration (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  wall REAL NOT NULL,
  cpu REAL NOT NULL,
  PRIMARY KEY (scope, package)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_imported_duration SELECT 1, package, wall, cpu FROM imported_duration;
DROP TABLE imported_duration;
ALTER TABLE scoped_imported_duration RENAME TO imported_duration;

CREATE TABLE scoped_measured (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  builds TEXT NOT NULL,
  PRIMARY KEY (scope, package)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_measured SELECT 1, package, builds FROM measured;
DROP TABLE measured;
ALTER TABLE scoped_measured RENAME TO measured;

CREATE TABLE scoped_current (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  build INTEGER NOT NULL,
  recipe_version TEXT NOT NULL,
  revision INTEGER NOT NULL,
  key TEXT NOT NULL,
  key_lines TEXT NOT NULL,
  PRIMARY KEY (scope, package)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_current SELECT 1, package, build, recipe_version, revision, key, key_lines FROM current;
DROP TABLE current;
ALTER TABLE scoped_current RENAME TO current;

CREATE TABLE scoped_output (
  scope INTEGER NOT NULL,
  package TEXT NOT NULL,
  name TEXT NOT NULL,
  output TEXT NOT NULL,
  PRIMARY KEY (scope, package, name)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_output SELECT 1, package, name, output FROM output;
DROP TABLE output;
ALTER TABLE scoped_output RENAME TO output;

CREATE TABLE scoped_plan (
  scope INTEGER PRIMARY KEY,
  digest TEXT NOT NULL,
  made REAL NOT NULL,
  expected REAL NOT NULL,
  bound REAL NOT NULL,
  cuts TEXT NOT NULL,
  path TEXT NOT NULL,
  remarks TEXT NOT NULL
) STRICT;
INSERT INTO scoped_plan SELECT 1, digest, made, expected, bound, cuts, path, remarks FROM plan;
DROP TABLE plan;
ALTER TABLE scoped_plan RENAME TO plan;

CREATE TABLE scoped_plan_package (
  scope INTEGER NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  blamed TEXT,
  estimate REAL NOT NULL,
  rank REAL NOT NULL,
  dependencies TEXT NOT NULL,
  why TEXT,
  PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
INSERT INTO scoped_plan_package
SELECT 1, name, version, state, reason, blamed, estimate, rank, dependencies, NULL FROM plan_package;
DROP TABLE plan_package;
ALTER TABLE scoped_plan_package RENAME TO plan_package;

-- The log of decisions. Data that other rows keep permanently is read from them: a stage that ended has only its
-- place among the stages of its build.
CREATE TABLE event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  epoch INTEGER NOT NULL,
  type TEXT NOT NULL,
  version INTEGER NOT NULL,
  scope INTEGER NOT NULL,
  run INTEGER,
  package TEXT,
  build INTEGER,
  place INTEGER,
  at REAL NOT NULL,
  body TEXT
) STRICT;
