use super::*;
use proptest::prelude::*;

fn graph(edges: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (package, dependency) in edges {
        let (package, dependency) = (graph.add(package), graph.add(dependency));
        graph.depend(package, dependency);
    }
    graph
}

fn numbered(len: u32, edges: &[(u32, u32)]) -> Graph {
    let mut graph = Graph::new();
    for number in 0..len {
        graph.add(&number.to_string());
    }
    for (package, dependency) in edges {
        graph.depend(PackageId(*package), PackageId(*dependency));
    }
    graph
}

const ANY: MayCut<'static> = &|_, _| Some(StandIn::Archive);

#[test]
fn a_cycle_is_cut_where_it_costs_least_and_names_its_members() {
    let mut graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("d", "a")]);
    let cutting = graph.cut_cycles(&[1.0; 4], Effort::ShortPath, ANY);
    assert_eq!((cutting.cuts.len(), cutting.uncut.len()), (1, 0), "{cutting:?}");
    assert_eq!(cutting.members(&cutting.cuts[0]).len(), 3);
    assert_eq!(cutting.cuts[0].saved_seconds, None);
    assert_eq!(graph.order().len(), 4);
}

#[test]
fn a_cycle_without_replacements_stays_uncut() {
    let mut graph = graph(&[("a", "b"), ("b", "a")]);
    let cutting = graph.cut_cycles(&[1.0; 2], Effort::ShortPath, &|_, _| None);
    assert_eq!((cutting.cuts.len(), cutting.uncut.len()), (0, 1));
    assert_eq!(graph.order(), []);
}

#[test]
fn an_edge_that_may_not_be_cut_stays() {
    let mut graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")]);
    let (a, b) = (graph.find("a").unwrap(), graph.find("b").unwrap());
    let cutting = graph.cut_cycles(&[1.0; 3], Effort::ShortPath, &|package, dependency| {
        (package == b && dependency != a || package == a).then_some(StandIn::Archive)
    });
    let cut: Vec<_> = cutting.cuts.iter().map(|cut| (cut.package, cut.dependency)).collect();
    assert_eq!(cut, [(a, b)]);
    assert_eq!(graph.order().len(), 3);
}

#[test]
fn among_equal_numbers_of_cuts_the_path_decides() {
    // a and b need each other. Cutting a -> b lets the long c start with a, at once.
    let mut graph = graph(&[("a", "b"), ("b", "a"), ("c", "a"), ("a", "c")]);
    let cutting = graph.cut_cycles(&[1.0, 50.0, 100.0], Effort::ShortPath, ANY);
    assert_eq!(cutting.cuts.len(), 2);
    assert_eq!(cutting.path_seconds, 101.0, "{cutting:?}");
}

/// A ring of hubs that need each other, with long chains between them: 150 packages.
fn large() -> (Graph, Vec<f64>) {
    let (mut edges, len) = (Vec::new(), 150u32);
    for number in 0..len {
        edges.push((number, (number + 1) % len));
        if number % 5 == 0 {
            edges.push((number, (number + 40) % len));
        }
    }
    (numbered(len, &edges), (0..len).map(|number| 1.0 + f64::from(number % 7)).collect())
}

#[test]
fn a_large_knot_trades_cuts_for_time() {
    let (whole, seconds) = large();
    let mut graph = whole.clone();
    let cutting = graph.cut_cycles(&seconds, Effort::ShortPath, ANY);
    assert_eq!(graph.order().len(), whole.len());
    let mut knot = Knot::of(&whole, &cutting.knots[0], &seconds, ANY);
    knot.settle(f64::INFINITY);
    assert!(cutting.cuts.len() as u64 <= 2 * knot.cost());
    // Each cut that closes no cycle saves time; putting it back would pass the limit.
    for cut in &cutting.cuts {
        let mut again = graph.clone();
        again.depend(cut.package, cut.dependency);
        match cut.saved_seconds {
            None => assert!(again.order().len() < again.len()),
            Some(saved) => {
                let longest = Paths::of(&again, &seconds, &[]).longest_seconds(&seconds);
                assert!((longest - cutting.path_seconds - saved).abs() < 1e-6, "{cut:?} {longest}");
            }
        }
    }
    let mut once_more = whole.clone();
    assert_eq!(
        once_more.cut_cycles(&seconds, Effort::ShortPath, ANY),
        cutting,
        "the same graph gives the same cuts"
    );
}

/// The fewest cuts of a graph of few packages, over all orders (Held and Karp's recursion over subsets): the packages
/// of a subset come first, and each costs its dependencies outside the subset.
fn fewest_cuts(graph: &Graph) -> usize {
    let len = graph.len();
    let needs: Vec<u32> =
        graph.packages().map(|id| graph.dependencies(id).iter().map(|to| 1u32 << to.0).sum()).collect();
    let mut least = vec![usize::MAX; 1 << len];
    least[0] = 0;
    for subset in 0..1u32 << len {
        for next in (0..len).filter(|next| subset & (1 << next) == 0) {
            let cost = least[subset as usize] + (needs[next] & !subset).count_ones() as usize;
            let larger = (subset | 1 << next) as usize;
            least[larger] = least[larger].min(cost);
        }
    }
    least[(1 << len) - 1]
}

#[test]
fn small_knots_are_cut_as_an_exhaustive_search_does() {
    let mut random = 7u64;
    let mut draw = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let (mut tried, mut more, mut exact) = (0, 0, 0);
    while tried < 500 {
        let len = 3 + draw(9) as u32;
        let count = u64::from(len) + draw(u64::from(len) * 2);
        let edges: Vec<(u32, u32)> =
            (0..count).map(|_| (draw(len.into()) as u32, draw(len.into()) as u32)).collect();
        let mut graph = numbered(len, &edges);
        let fewest = fewest_cuts(&graph);
        if fewest == 0 {
            continue;
        }
        tried += 1;
        let seconds: Vec<f64> = (0..len).map(|_| 1.0 + draw(100) as f64).collect();
        let cutting = graph.cut_cycles(&seconds, Effort::ShortPath, ANY);
        let found = cutting.cuts.len();
        assert!((1..=fewest).contains(&cutting.cuts_min), "{cutting:?}");
        exact += usize::from(cutting.cuts_min == fewest);
        assert!(found >= fewest && found <= fewest + 1, "{found} instead of {fewest}: {edges:?}");
        more += usize::from(found > fewest);
    }
    assert!(more <= 5, "{more} of {tried} are not the fewest");
    assert!(exact >= 450, "the bound is exact for {exact} of {tried}");
}

proptest! {
    #[test]
    fn all_packages_have_an_order_after_cutting(edges in prop::collection::vec((0u32..12, 0u32..12), 0..60)) {
        let mut graph = numbered(12, &edges);
        let before = graph.clone();
        let cutting = graph.cut_cycles(&[1.0; 12], Effort::ShortPath, ANY);
        prop_assert!(cutting.uncut.is_empty());
        prop_assert_eq!(graph.order().len(), 12);
        prop_assert!(before.cycles().is_empty() == cutting.cuts.is_empty());
        prop_assert!(cutting.path_seconds >= cutting.path_seconds_min);
        // No edge is missing except those in `cuts`, and each of them would close a cycle.
        let edges_of = |g: &Graph| g.packages().map(|p| g.dependencies(p).len()).sum::<usize>();
        prop_assert_eq!(edges_of(&before), edges_of(&graph) + cutting.cuts.len());
        for cut in &cutting.cuts {
            let mut again = graph.clone();
            again.depend(cut.package, cut.dependency);
            prop_assert!(again.order().len() < 12);
        }
    }
}
