//! The key of a build: its inputs as lines, and the hash of the lines.
//!
//! Keys of version 2 contain the target, the version of the family's rules, the sandbox version, and the content of
//! the trees of the root. Version 1 had the architecture, and the sources of the base root. Packages built under
//! version 1 stay valid: the former key is computed from the lines of the current one.

use crate::order::Key;
use crate::sha256::Sha256Hex;
use crate::target::Target;

/// The first line of a key of this version.
const FORMAT: &str = "format kilnyard-key 2";
/// The first line of a key of the previous version.
const FORMAT_1: &str = "format kilnyard-key 1";
/// The version of the sandbox: no network; syncs are discarded; unneeded system calls are refused; one user, which is
/// not root. Increment it for any change that a build could observe.
const SANDBOX: u32 = 1;
/// Kinds of lines that only one of the two versions has, or whose meaning differs.
const OF_ONE_VERSION: [&str; 5] = ["ecosystem", "root", "rules", "sandbox", "target"];

impl Key {
    /// Makes a key from the lines of the package and its options, each `KIND NAME VALUE`; the target; the version of
    /// the family's rules; and `root`, one hash of all trees of the root.
    pub fn new(mut lines: Vec<String>, target: &Target, rules: u32, root: &str) -> Key {
        lines.extend([
            format!("target {target}"),
            format!("rules {rules}"),
            format!("sandbox {SANDBOX}"),
            format!("root {root}"),
        ]);
        hashed(FORMAT, lines)
    }

    /// Whether outputs built under the key `kept` are valid for this one. `former_root` is the value of `root` in
    /// keys of version 1.
    pub fn is_met_by(&self, kept: &Key, former_root: &str) -> bool {
        kept.digest == self.digest || is_former(kept) && kept.digest == self.former(former_root).digest
    }

    /// This key in version 1.
    fn former(&self, root: &str) -> Key {
        let target = self.lines.iter().find_map(|line| line.strip_prefix("target ")?.parse::<Target>().ok());
        let system = target
            .map(|target| format!("ecosystem {} {}", target.family(), target.architecture()))
            .unwrap_or_default();
        let common = self.lines.iter().skip(1).filter(|line| !OF_ONE_VERSION.contains(&kind(line)));
        hashed(FORMAT_1, common.cloned().chain([system, format!("root {root}")]).collect())
    }

    /// The lines that can be compared, of this key and of an earlier one.
    pub(crate) fn comparable<'a>(&'a self, earlier: &'a Key) -> [Vec<&'a str>; 2] {
        let is_other = is_former(self) != is_former(earlier);
        [self, earlier].map(|key| {
            let lines = key.lines.iter().map(String::as_str);
            lines
                .filter(|line| kind(line) != "format" && !(is_other && OF_ONE_VERSION.contains(&kind(line))))
                .collect()
        })
    }
}

fn is_former(key: &Key) -> bool {
    key.lines.first().is_some_and(|line| line == FORMAT_1)
}

fn kind(line: &str) -> &str {
    line.split(' ').next().unwrap_or("")
}

fn hashed(format: &str, mut lines: Vec<String>) -> Key {
    lines.sort_unstable();
    lines.insert(0, format.to_owned());
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Key { digest: Sha256Hex::of(text.as_bytes()).as_str().to_owned(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_version_1_stay_valid() {
        let target: Target = "debian/linux/bookworm/amd64".parse().unwrap();
        let key = |version: &str| {
            let lines = vec![format!("recipe zlib {version}"), "option checks true".to_owned()];
            Key::new(lines, &target, 1, "content")
        };
        let now = key("1.2");
        let expected = [
            "format kilnyard-key 2",
            "option checks true",
            "recipe zlib 1.2",
            "root content",
            "rules 1",
            "sandbox 1",
            "target debian/linux/bookworm/amd64",
        ];
        assert_eq!(now.lines, expected);
        // A key of that version; sha256sum(1) computed the digest.
        let lines =
            [FORMAT_1, "ecosystem debian amd64", "option checks true", "recipe zlib 1.2", "root list"];
        let before = Key {
            digest: "9ba3718bb3f795c3075d675ffea2e80252d432761c1d61a8c84f829769cb4c68".to_owned(),
            lines: lines.map(str::to_owned).to_vec(),
        };
        assert!(now.is_met_by(&before, "list") && now.is_met_by(&now, "list"));
        assert!(!now.is_met_by(&before, "another list") && !key("1.3").is_met_by(&before, "list"));
        // A key without the format line of version 1 is not a former one, whatever its digest.
        assert!(!now.is_met_by(&Key { lines: Vec::new(), ..before.clone() }, "list"));
        let [now, before] = now.comparable(&before);
        assert_eq!(now, before);
    }
}
