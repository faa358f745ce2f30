use super::*;
use crate::debian::ownership::{Claims, Takeovers};
use std::collections::BTreeMap;

const SOURCE: &str = "Package: tool\nBinary: tool, libtool1, tool-doc, tool-udeb, only-hurd\nVersion: 1.0-1\n\
Architecture: any all\nPackage-List:\n tool deb misc optional arch=any\n libtool1 deb libs optional arch=linux-any\n \
tool-doc deb doc optional arch=all\n tool-udeb udeb debian-installer optional arch=any\n \
only-hurd deb misc optional arch=hurd-any\n";

fn output(name: &str, version: &str, architecture: &str, more: &str) -> Output {
    let ending = if name.ends_with("-udeb") { "udeb" } else { "deb" };
    Output {
        name: name.into(),
        version: version.into(),
        architecture: architecture.into(),
        file: format!("{name}_{version}_{architecture}.{ending}"),
        sha256: String::new(),
        size_bytes: 1,
        content: String::new(),
        description: format!(
            "Package: {name}\nSource: tool (1.0-1)\nVersion: {version}\nArchitecture: {architecture}\n{more}"
        ),
        digests: Default::default(),
    }
}

fn good(name: &str) -> Output {
    output(name, "1.0-1+bk2", "amd64", "")
}

/// Checks outputs of a build of tool 1.0-1+bk2 against published packages and other declarations.
fn judge(
    outputs: Vec<Output>,
    published: &str,
    others: &[(&'static str, &'static str)],
    takeovers: &[(&str, &str)],
) -> Result<Admitted, String> {
    let mut known = Published::default();
    known.add(published, "+bk");
    let takeovers: Takeovers =
        takeovers.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect();
    let source = Source::new(Stanza::new(SOURCE));
    let mut claims = Claims {
        claimants: BTreeMap::new(),
        sources: ["tool", "other"].into(),
        published: &known,
        takeovers: &takeovers,
    };
    let own = source.declared();
    let claimants = own.iter().map(|one| (one.name, "tool")).chain(others.iter().copied());
    for (name, source) in claimants {
        claims.claimants.entry(name).or_default().insert(source);
    }
    let owners = Owners::decide(&claims, |_| None);
    let order = Order {
        source,
        version: "1.0-1+bk2",
        suffix: "+bk",
        architecture: "amd64",
        owners: &owners,
        published: &known,
    };
    admit(&order, outputs).map_err(|refusal| refusal.to_string())
}

#[track_caller]
fn refused(outputs: Vec<Output>, published: &str, words: &[&str]) {
    let error = judge(outputs, published, &[], &[]).unwrap_err();
    for word in words {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
}

#[test]
fn declared_outputs_are_admitted() {
    let debug = output("tool-dbgsym", "1.0-1+bk2", "amd64", "Auto-Built-Package: debug-symbols\n");
    let doc = output("tool-doc", "1.0-1+bk2", "all", "");
    let all = vec![good("tool"), good("libtool1"), good("tool-udeb"), debug, doc];
    assert_eq!(judge(all.clone(), "", &[], &[]).unwrap(), Admitted { outputs: all, taken_over: Vec::new() });
}

#[test]
fn a_name_that_the_source_does_not_declare_is_refused() {
    let words = ["bash_99_amd64.deb", "the package bash", "source tool does not declare", "tool, libtool1"];
    refused(vec![output("bash", "99", "amd64", "")], "", &words);
    refused(vec![output("bash", "99+bk2", "amd64", "")], "", &words[1..]);
    // Debug symbols of such a name are refused as well.
    let debug = output("bash-dbgsym", "1.0-1+bk2", "amd64", "Auto-Built-Package: debug-symbols\n");
    refused(vec![debug], "", &["the package bash-dbgsym"]);
}

#[test]
fn architecture_and_kind_must_match_the_declaration() {
    refused(vec![output("tool", "1.0-1+bk2", "all", "")], "", &["is for all", "declares tool for any"]);
    refused(vec![good("tool-doc")], "", &["is for amd64", "declares tool-doc for all"]);
    refused(vec![good("only-hurd")], "", &["declares only-hurd for hurd-any"]);
    let as_deb = Output { file: "tool-udeb_1.0-1+bk2_amd64.deb".into(), ..good("tool-udeb") };
    refused(vec![as_deb], "", &["is a deb package", "as a udeb package"]);
    let as_udeb = Output { file: "tool_1.0-1+bk2_amd64.udeb".into(), ..good("tool") };
    refused(vec![as_udeb], "", &["is a udeb package", "as a deb package"]);
}

#[test]
fn debug_symbols_are_recognized_by_their_field_and_architecture() {
    refused(vec![good("tool-dbgsym")], "", &["Auto-Built-Package"]);
    let of_all = output("tool-doc-dbgsym", "1.0-1+bk2", "all", "Auto-Built-Package: debug-symbols\n");
    refused(vec![of_all], "", &["is for all"]);
    let of_udeb = output("tool-udeb-dbgsym", "1.0-1+bk2", "amd64", "Auto-Built-Package: debug-symbols\n");
    refused(vec![of_udeb], "", &["does not declare"]);
}

#[test]
fn a_version_must_contain_its_rebuild_number() {
    for version in ["1.0-1", "99", "1.0-1+bk1", "1.0-1+bk20", "1.0-1+bk"] {
        refused(vec![output("tool", version, "amd64", "")], "", &["does not contain", "+bk2"]);
    }
    // gcc-defaults, lvm2 and the cross compilers have their own version schemes.
    for version in ["4:12.2.0-3+bk2", "2:1.02.185-2+bk2", "12.2.0-14+bk2cross1"] {
        judge(vec![output("tool", version, "amd64", "")], "", &[], &[]).unwrap();
    }
}

#[test]
fn another_version_of_the_source_is_refused() {
    let mut forged = good("tool");
    forged.description = forged.description.replace("(1.0-1)", "(9)");
    refused(vec![forged], "", &["made from version 9", "1.0-1"]);
}

#[test]
fn a_version_must_be_above_the_published_one() {
    for published in ["1.0-1+bk2", "1.0-1+bk10", "1:0.5-1+bk1"] {
        let index = format!("Package: tool\nVersion: {published}\n");
        refused(vec![good("tool")], &index, &["not above", published, "epoch", "kilnyard publish"]);
    }
    judge(vec![good("tool")], "Package: tool\nVersion: 1.0-1+bk1\n", &[], &[]).unwrap();
}

#[test]
fn a_name_of_another_source_is_refused_until_the_configuration_transfers_it() {
    let published = "Package: tool\nSource: other\nVersion: 0.1+bk1\n";
    refused(
        vec![good("tool")],
        published,
        &["belongs to the source other", "`takeover.\"tool\" = [\"tool\"]`"],
    );
    judge(vec![good("tool")], published, &[], &[("tool", "tool")]).unwrap();
    let error = judge(vec![good("tool")], "", &[("tool", "other")], &[]).unwrap_err();
    assert!(error.contains("(other, tool)") && error.contains("takeover."), "{error}");
    // A package that another source has taken over is still built, but not kept.
    let debug = output("tool-dbgsym", "1.0-1+bk2", "amd64", "Auto-Built-Package: debug-symbols\n");
    let outputs = vec![good("tool"), debug, good("libtool1")];
    let admitted = judge(outputs, "", &[("tool", "other")], &[("tool", "other")]).unwrap();
    assert_eq!(admitted.outputs, [good("libtool1")]);
    let taken: Vec<&str> = admitted.taken_over.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(taken, ["tool", "tool-dbgsym"]);
}
