//! What coordinator and worker say to each other
