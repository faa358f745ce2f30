//! OpenPGP: verify an archive, sign a repository
