//! A lower bound on the number of cuts: cycles that share no edge need a cut each.

use crate::graph::{Graph, PackageId};
use std::collections::VecDeque;

/// The longest cycles of each pass. Short cycles first: they use up the fewest edges.
const LENGTHS: [usize; 4] = [2, 3, 4, usize::MAX];

/// The number of cycles without common edges that a search finds among the members of a knot, which are sorted: no choice
/// of cuts needs fewer.
pub(super) fn fewest_cuts(graph: &Graph, members: &[PackageId]) -> usize {
    let inside = |package: &PackageId| -> Vec<u32> {
        let places = graph.dependencies(*package).iter().filter_map(|to| members.binary_search(to).ok());
        places.map(|place| place as u32).collect()
    };
    let mut edges: Vec<Vec<u32>> = members.iter().map(inside).collect();
    let mut count = 0;
    for length_max in LENGTHS {
        for member in 0..members.len() as u32 {
            while let Some(cycle) = shortest_cycle(&edges, member, length_max) {
                for (at, from) in cycle.iter().enumerate() {
                    let to = cycle[(at + 1) % cycle.len()];
                    edges[*from as usize].retain(|other| *other != to);
                }
                count += 1;
            }
        }
    }
    count
}

/// The members of a shortest cycle through this one, of at most `length_max` edges, in the order of its edges.
fn shortest_cycle(edges: &[Vec<u32>], start: u32, length_max: usize) -> Option<Vec<u32>> {
    let mut before: Vec<Option<u32>> = vec![None; edges.len()];
    let mut open = VecDeque::from([(start, 0)]);
    while let Some((member, length)) = open.pop_front() {
        if length >= length_max {
            return None;
        }
        for next in &edges[member as usize] {
            if *next == start {
                let mut cycle: Vec<u32> =
                    std::iter::successors(Some(member), |at| before[*at as usize]).collect();
                cycle.reverse();
                return Some(cycle);
            }
            if before[*next as usize].is_none() {
                before[*next as usize] = Some(member);
                open.push_back((*next, length + 1));
            }
        }
    }
    None
}
