//! Pages: the report of a run
