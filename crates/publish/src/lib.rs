//! Repositories: indexes written and switched atomically
