-- Who leads, and when it was last there. timeline: that of the server when it became the leader; 0 if the server does not
-- tell.
ALTER TABLE kilnyard.store
  ADD COLUMN holder TEXT NOT NULL DEFAULT '',
  ADD COLUMN holder_name TEXT NOT NULL DEFAULT '',
  ADD COLUMN renewed TIMESTAMPTZ,
  ADD COLUMN has_left BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN timeline BIGINT NOT NULL DEFAULT 0;

-- What a coordinator on another machine needs to take over: its configuration and the like. Later versions replace
-- earlier ones.
CREATE TABLE kilnyard.document (
  name TEXT COLLATE "C" PRIMARY KEY,
  version BIGINT NOT NULL,
  content BYTEA NOT NULL
);
