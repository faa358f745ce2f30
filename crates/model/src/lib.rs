//! Names, packages, index, graph, resolver: pure data and decisions
