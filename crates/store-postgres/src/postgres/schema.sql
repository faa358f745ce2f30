CREATE SCHEMA IF NOT EXISTS kilnyard;

-- The only row of the store. Its ids never change. format: the steps that were applied; oldest_writer: the first format
-- whose programs may write this store. epoch: the number of the latest lead. builds: the highest build number ever used.
-- events: the number of the latest event. batch: the id of the last transaction that wrote records.
CREATE TABLE kilnyard.store (
  only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
  farm TEXT NOT NULL,
  yard TEXT NOT NULL,
  format BIGINT NOT NULL,
  oldest_writer BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  builds BIGINT NOT NULL,
  runs BIGINT NOT NULL,
  events BIGINT NOT NULL,
  batch TEXT NOT NULL
);

-- What rows belong to.
CREATE TABLE kilnyard.scope (
  number BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  farm TEXT NOT NULL,
  yard TEXT NOT NULL,
  target TEXT NOT NULL,
  UNIQUE (farm, yard, target)
);

CREATE TABLE kilnyard.run (
  number BIGINT PRIMARY KEY,
  scope BIGINT NOT NULL,
  started DOUBLE PRECISION NOT NULL,
  ended DOUBLE PRECISION,
  state TEXT NOT NULL,
  plan_digest TEXT NOT NULL,
  cores BIGINT NOT NULL,
  slots BIGINT NOT NULL,
  expected DOUBLE PRECISION NOT NULL,
  bound DOUBLE PRECISION NOT NULL,
  forced TEXT
);

CREATE TABLE kilnyard.run_package (
  run BIGINT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  version TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  blamed TEXT,
  estimate DOUBLE PRECISION NOT NULL,
  rank DOUBLE PRECISION NOT NULL,
  why TEXT,
  PRIMARY KEY (run, name)
);
CREATE INDEX run_package_state ON kilnyard.run_package (run, state);

CREATE TABLE kilnyard.build (
  number BIGINT PRIMARY KEY,
  scope BIGINT NOT NULL,
  run BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  version TEXT NOT NULL,
  slot BIGINT NOT NULL,
  key TEXT NOT NULL,
  started DOUBLE PRECISION NOT NULL,
  ended DOUBLE PRECISION,
  outcome TEXT NOT NULL,
  failure TEXT,
  reproducible BOOLEAN,
  attempt TEXT CONSTRAINT build_attempt UNIQUE,
  worker TEXT,
  cores BIGINT NOT NULL,
  kernel TEXT,
  cpu TEXT
);
CREATE INDEX build_package ON kilnyard.build (scope, package, number);
CREATE INDEX build_run ON kilnyard.build (run);

CREATE TABLE kilnyard.stage (
  build BIGINT NOT NULL,
  position BIGINT NOT NULL,
  result TEXT NOT NULL,
  PRIMARY KEY (build, position)
);

CREATE TABLE kilnyard.duration (
  scope BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  wall DOUBLE PRECISION NOT NULL,
  cpu DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (scope, package)
);

CREATE TABLE kilnyard.imported_duration (LIKE kilnyard.duration INCLUDING ALL);

CREATE TABLE kilnyard.measured (
  scope BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  builds TEXT NOT NULL,
  PRIMARY KEY (scope, package)
);

CREATE TABLE kilnyard.current (
  scope BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  build BIGINT NOT NULL,
  recipe_version TEXT NOT NULL,
  revision BIGINT NOT NULL,
  key TEXT NOT NULL,
  key_lines TEXT NOT NULL,
  PRIMARY KEY (scope, package)
);

CREATE TABLE kilnyard.output (
  scope BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  output TEXT NOT NULL,
  PRIMARY KEY (scope, package, name)
);

CREATE TABLE kilnyard.provenance (
  scope BIGINT NOT NULL,
  package TEXT COLLATE "C" NOT NULL,
  build BIGINT NOT NULL,
  worker TEXT NOT NULL,
  pool TEXT NOT NULL,
  key TEXT NOT NULL,
  signature TEXT NOT NULL,
  -- Compressed with zstd.
  statement BYTEA NOT NULL,
  PRIMARY KEY (scope, package)
);

CREATE TABLE kilnyard.request (
  number BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  scope BIGINT NOT NULL,
  kind TEXT NOT NULL,
  package TEXT NOT NULL,
  at DOUBLE PRECISION NOT NULL
);

CREATE TABLE kilnyard.plan (
  scope BIGINT PRIMARY KEY,
  digest TEXT NOT NULL,
  made DOUBLE PRECISION NOT NULL,
  expected DOUBLE PRECISION NOT NULL,
  bound DOUBLE PRECISION NOT NULL,
  cuts TEXT NOT NULL,
  path TEXT NOT NULL,
  remarks TEXT NOT NULL
);

CREATE TABLE kilnyard.plan_package (
  scope BIGINT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  version TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  blamed TEXT,
  estimate DOUBLE PRECISION NOT NULL,
  rank DOUBLE PRECISION NOT NULL,
  dependencies TEXT NOT NULL,
  why TEXT,
  PRIMARY KEY (scope, name)
);

-- The log of decisions. Data that other rows keep permanently is read from them: a stage that ended has only its place
-- among the stages of its build.
CREATE TABLE kilnyard.event (
  seq BIGINT PRIMARY KEY,
  epoch BIGINT NOT NULL,
  type TEXT NOT NULL,
  version BIGINT NOT NULL,
  scope BIGINT NOT NULL,
  run BIGINT,
  package TEXT,
  build BIGINT,
  place BIGINT,
  at DOUBLE PRECISION NOT NULL,
  body TEXT
);
