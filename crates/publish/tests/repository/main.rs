//! Publishes real packages into real directories and reads them with the real `apt-get`.

mod apt;
mod crash;
mod full_disk;
mod http;
mod lists;
mod packages;
mod plan;
mod support;
