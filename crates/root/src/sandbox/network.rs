//! The kernel's network counters for a namespace (proc_pid_net(5), `snmp`).

/// Counts packets without a route, and datagrams to a port in this namespace that has no listener, such as a query to a
/// name server when none is configured. IPv6 is not counted if no address is configured.
pub(super) fn unreachable() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    count(&text, "Ip:", "OutNoRoutes").saturating_add(count(&text, "Udp:", "NoPorts"))
}

/// A value from a table, which is a line of names and a line of numbers below it.
fn count(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let place = names.split_ascii_whitespace().position(|found| found == name);
    place.and_then(|place| values.split_ascii_whitespace().nth(place)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_below_its_name() {
        let text = "Ip: Forwarding OutNoRoutes\nIp: 2 7\nUdp: InDatagrams NoPorts InErrors\nUdp: 1 5 9\n";
        assert_eq!((count(text, "Ip:", "OutNoRoutes"), count(text, "Udp:", "NoPorts")), (7, 5));
        for text in ["", "Ip: OutNoRoutes", "Ip: OutNoRoutes\nIp: x", "Ip: OutNoRoutes\nIp:"] {
            assert_eq!(count(text, "Ip:", "OutNoRoutes"), 0, "{text}");
        }
    }
}
