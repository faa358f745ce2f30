//! Distfiles: fetched once, checked, resumed
