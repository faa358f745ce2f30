use super::*;

/// A realistic file after some years of use.
const REAL: &str = r#"# Version of the configuration file.
config_version=0.68

branch=2026Q3        # the quarterly branch
base_url=http://reports.example.org/${branch}/NetBSD-10

reuse_scan_results=yes
master_mode=no
master_ip=192.0.2.10
build_clients="192.0.2.21 192.0.2.22"
scan_clients=
master_port_build=${master_ip}:2002

pkg_rsync_args="-av --delete-excluded -e ssh"
report_subject_prefix="pkgsrc-$branch"
report_recipients="pkgsrc-bulk@example.org"

bootstrapkit=/usr/pkgsrc/bootstrap/bootstrap.tar.gz
limited_list=/etc/minimal_list
limited_list=/etc/limited_list
#limited_list=
unprivileged_user=pbulk
cross_compile=no
target_arch=vax
target_destdir=/usr/src/destdir.${target_arch}
bulklog=/bulklog
packages=/packages/`uname -s`/$(uname -p)
prefix=/usr/pkg
pkgsrc=/usr/pkgsrc-"$branch"
make=${prefix}/bin/bmake
mail=: #/usr/bin/mail
build_chroots=4
if [ -f /etc/release ]; then
	make=/opt/bin/make; varbase=/opt/var
fi
. /etc/pbulk-local.conf
[ -d /scratch ] && keep_wrkdir=yes
gzip="/usr/bin/gzip -nf -9"
bzip2=@BZIP2@
"#;

fn conf(text: &str) -> PbulkConf {
    PbulkConf::parse(text).unwrap()
}

fn reason(text: &str, name: &str) -> String {
    let imports = conf(text).imports();
    let mut found = imports.not_imported.into_iter().filter(|refused| refused.name == name);
    found.next().map(|refused| format!("{}: {}", refused.line, refused.reason)).unwrap_or_default()
}

#[test]
fn a_realistic_file_is_carried_over() {
    let without_condition = REAL.replace("make=/opt/bin/make; ", "");
    let imports = conf(&without_condition).imports();
    assert_eq!(imports.wanted, Some(Wanted::File("/etc/limited_list".to_owned())));
    let value = |key| imports.values.iter().find(|(other, _)| *other == key).map(|(_, value)| &value[..]);
    assert_eq!(value(ConfigKey::Tree), Some("/usr/pkgsrc-2026Q3"));
    assert_eq!(value(ConfigKey::Prefix), Some("/usr/pkg"));
    assert_eq!(value(ConfigKey::Make), Some("/usr/pkg/bin/bmake"));
    assert_eq!(value(ConfigKey::BootstrapKit), Some("/usr/pkgsrc/bootstrap/bootstrap.tar.gz"));
    assert_eq!(value(ConfigKey::Slots), Some("4"));
    let same: Vec<&str> = imports
        .imported
        .iter()
        .filter(|imported| imported.key.is_none())
        .map(|imported| &imported.name[..])
        .collect();
    assert_eq!(same, ["reuse_scan_results", "master_mode", "scan_clients", "cross_compile", "mail"]);
}

#[test]
fn other_settings_can_be_queried() {
    let conf = conf(REAL);
    assert_eq!(conf.get("base_url"), Some("http://reports.example.org/2026Q3/NetBSD-10"));
    assert_eq!(conf.get("report_subject_prefix"), Some("pkgsrc-2026Q3"));
    assert_eq!(conf.get("master_port_build"), Some("192.0.2.10:2002"));
    assert_eq!(conf.get("target_destdir"), Some("/usr/src/destdir.vax"));
    assert_eq!((conf.get("scan_clients"), conf.get("gzip")), (Some(""), Some("/usr/bin/gzip -nf -9")));
    assert_eq!((conf.get("packages"), conf.get("keep_prefix")), (None, None));
}

#[test]
fn settings_that_need_a_shell_are_reported_with_their_line() {
    assert_eq!(reason(REAL, "packages"), "27: it runs a command");
    assert_eq!(reason(REAL, "make"), "34: it is set in conditional code, which is not run");
    assert_eq!(reason(REAL, "varbase"), "34: it is set in conditional code, which is not run");
    assert_eq!(reason(REAL, "keep_wrkdir"), "37: it is set in conditional code, which is not run");
    assert_eq!(reason(REAL, "if"), "33: it is conditional code, which is not run");
    assert_eq!(reason(REAL, "."), "36: it reads another file, which is not evaluated");
    assert_eq!(reason(REAL, "bzip2"), "39: `@BZIP2@` is replaced when pbulk is installed");
    assert_eq!(reason(REAL, "build_clients"), format!("10: {OTHER_MACHINES}"));
    assert_eq!(reason(REAL, "branch"), format!("4: {NO_SETTING}"));
    assert_eq!(reason("make=$HOME/bmake\n", "make"), "1: it refers to `HOME`, which is not set earlier");
    assert_eq!(reason("a=`b`\nmake=$a\n", "make"), "2: it refers to `a`, which is not imported either");
    assert_eq!(reason("make=~/bmake", "make"), "1: `~` is a home folder, which is unknown");
    assert_eq!(reason("make=${make:-/bin/make}", "make"), "1: it is computed by an unsupported `${...}`");
}

#[test]
fn every_setting_is_reported_once() {
    let imports = conf(REAL).imports();
    let mut names: Vec<&str> = imports.imported.iter().map(|imported| &imported.name[..]).collect();
    names.extend(imports.not_imported.iter().map(|refused| &refused.name[..]));
    for name in conf(REAL).settings.keys() {
        assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{name}");
    }
    assert!(imports.not_imported.is_sorted_by_key(|refused| refused.line));
}

#[test]
fn settings_in_conditional_code_are_unknown() {
    for text in [
        "case $x in\nyes) make=/m ;;\nesac",
        "case $x in yes) make=/m;; esac",
        "case $x in (yes) make=/m;; esac",
        "for m in a b; do make=/m; done",
        "while read m; do\nmake=/m\ndone < /list",
        "until false; do make=/m; done",
        "set_make() { make=/m; }",
        "set_make() (\nmake=/m\n)",
        "function set_make { make=/m; }",
        "( make=/m )",
        "{ make=/m; }",
        "true && make=/m",
        "true ||\n\nmake=/m",
        "echo | make=/m",
        "make=/m | cat",
        "make=/m &",
        "if true; then if true; then :; fi; make=/m; fi",
        "if true; then unset make; fi",
    ] {
        let text = format!("make=/first\n{text}\nprefix=/p\n");
        let conf = conf(&text);
        assert_ne!(conf.get("make"), Some("/m"), "{text}");
        assert_eq!(conf.get("prefix"), Some("/p"), "{text}");
        let is_elsewhere = text.contains("function set_make");
        assert!(is_elsewhere || conf.get("make").is_none(), "{text}");
    }
}

#[test]
fn assignments_of_all_forms_are_read() {
    let conf = conf(
        "export make=/m prefix=/p; a=1 b='2 3'\nreadonly c=$b\nunset a\nd=x e=$d command\nd=\"y\\\nz\"\n",
    );
    let get = |name| conf.get(name);
    assert_eq!((get("make"), get("prefix"), get("a"), get("b")), (Some("/m"), Some("/p"), None, Some("2 3")));
    assert_eq!((get("c"), get("d"), get("e")), (Some("2 3"), Some("yz"), None));
    assert_eq!(conf.others.iter().map(|other| &other.name[..]).collect::<Vec<_>>(), ["command"]);
}

#[test]
fn an_empty_or_absent_list_asks_for_all_of_the_tree() {
    assert_eq!(conf("limited_list=/a\nlimited_list=\n").imports().wanted, Some(Wanted::All));
    assert_eq!(conf("").imports().wanted, Some(Wanted::All));
    assert_eq!(conf("limited_list=`ls`\n").imports().wanted, None);
}

#[test]
fn malformed_and_growing_files_are_rejected() {
    assert_eq!(PbulkConf::parse("\nmake=\"/m").unwrap_err().to_string(), "line 2: `\"` is not closed");
    let long = " ".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(PbulkConf::parse(&long), Err(PbulkConfError::TooLong { bytes: TEXT_BYTES_MAX + 1 }));
    let doubling = format!("make=xx\n{}", "make=$make$make\n".repeat(40));
    assert!(reason(&doubling, "make").ends_with("which is not imported either"));
    let many: String = (0..600).map(|number| format!("x{number}=$make\n")).collect();
    let many = format!("make=xx\n{}{many}", "make=$make$make\n".repeat(14));
    assert!(reason(&many, "x599").ends_with("the values are too long"));
}

#[test]
fn the_table_has_every_name_once() {
    assert!(RULES.is_sorted_by(|(one, _), (other, _)| one < other));
}
