use super::*;

/// A realistic configuration file.
const REAL: &str = r#"--[[
  The builds of our Linux machine.
]]
local base = "/data/" .. 'pkgsrc'
local branch <const> = "2026Q3"

options = {
    build_threads = 6,
    scan_threads = 12,
    log_level = "debug", -- for now
    strict_scan = false,
}

publish = {
    report = { host = "reports.example.org", path = "www/" .. branch, to = { "a@example.org" } },
}
local git_branch = os.getenv("GIT_BRANCH")
if git_branch then
    publish.report.branch = git_branch:gsub("^[^/]*/", "")
end

pkgsrc = {
    basedir = base .. "-" .. branch,
    bootstrap = base .. "/bootstrap.tar.gz",
    make = "/usr/pkg/bin/bmake",
    build_user = os.getenv("BUILDER") or "builder",
    pkgpaths = {
        "mail/mutt",
        "sysutils/coreutils",
    },
    unheard_of = 1;
}

sandboxes = {
    basedir = base .. "/chroot",
    environment = { build = { clear = true, vars = { PATH = "/bin:/usr/bin" } } },
    setup = {
        { action = "mount", fs = "bind", dir = pkgsrc.basedir, opts = "ro" },
        { action = "cmd", chroot = true, only = { set = "pkgsrc.build_user" },
          create = dedent [[
                mkdir -p ${bob_build_user_home}
          ]] },
    },
}
dynamic = { jobs = 4 * 4 }
"#;

fn config(text: &str) -> BobConfig {
    BobConfig::parse(text).unwrap()
}

fn reason(text: &str, name: &str) -> String {
    let imports = config(text).imports();
    let mut found = imports.not_imported.into_iter().filter(|refused| refused.name == name);
    found.next().map(|refused| format!("{}: {}", refused.line, refused.reason)).unwrap_or_default()
}

fn error(text: &str) -> String {
    BobConfig::parse(text).unwrap_err().to_string()
}

#[test]
fn a_realistic_file_is_carried_over() {
    let imports = config(REAL).imports();
    assert_eq!(imports.wanted, Some(Wanted::Some(vec!["mail/mutt".into(), "sysutils/coreutils".into()])));
    let value = |key| imports.values.iter().find(|(other, _)| *other == key).map(|(_, value)| &value[..]);
    assert_eq!(value(ConfigKey::Tree), Some("/data/pkgsrc-2026Q3"));
    assert_eq!(value(ConfigKey::BootstrapKit), Some("/data/pkgsrc/bootstrap.tar.gz"));
    assert_eq!((value(ConfigKey::Make), value(ConfigKey::Slots)), (Some("/usr/pkg/bin/bmake"), Some("6")));
    assert_eq!(config(REAL).get("publish.report.path").as_deref(), Some("www/2026Q3"));
    assert_eq!(config(REAL).get("sandboxes.basedir").as_deref(), Some("/data/pkgsrc/chroot"));
}

#[test]
fn unsupported_settings_are_reported_with_their_line() {
    assert_eq!(reason(REAL, "if"), "18: it is conditional code, which is not run");
    assert_eq!(reason(REAL, "pkgsrc.build_user"), "26: it calls `os.getenv`");
    assert_eq!(reason(REAL, "pkgsrc.unheard_of"), "31: it is not a setting of bob");
    assert_eq!(reason(REAL, "sandboxes.setup"), format!("37: {OWN_ROOTS}"));
    assert_eq!(reason(REAL, "sandboxes.environment"), format!("36: {ENVIRONMENT}"));
    assert_eq!(reason(REAL, "publish.report"), format!("15: {UPLOADS}"));
    assert_eq!(reason(REAL, "dynamic.jobs"), "45: it is computed");
    assert_eq!(
        reason("options = { build_threads = cores }", "options.build_threads"),
        "1: it refers to `cores`, which is not set earlier"
    );
    assert_eq!(reason("options = { build_threads = -1 }", "options.build_threads"), "1: it is computed");
    assert_eq!(
        reason("options = { build_threads = 0x4 }", "options.build_threads"),
        "1: `0x4` is not a number from 1 to 4096"
    );
    assert_eq!(reason("pkgsrc = { make = {} }", "pkgsrc.make"), "1: it is neither text nor a number");
    assert_eq!(reason("pkgsrc = {}\npkgsrc[k] = 1", "pkgsrc"), "2: the name that it sets is computed");
    assert_eq!(reason("print('x')", "print"), "1: it calls a function");
}

#[test]
fn a_duplicate_name_in_a_table_is_reported_once() {
    let imports = config("pkgsrc = { make = '/m', prefix = '/p', make = f() }").imports();
    assert_eq!(imports.values, [(ConfigKey::Prefix, "/p".to_owned())]);
    assert_eq!(
        imports.not_imported.iter().map(|refused| &refused.name[..]).collect::<Vec<_>>(),
        ["pkgsrc.make"]
    );
}

#[test]
fn packages_come_from_a_list_a_file_or_the_whole_tree() {
    let wanted = |text: &str| config(text).imports().wanted;
    assert_eq!(wanted("pkgsrc = { pkgpaths = read_pkgpaths('/list') }"), Some(Wanted::File("/list".into())));
    assert_eq!(wanted("pkgsrc = { pkgpaths = read_pkgpaths '/list' }"), Some(Wanted::File("/list".into())));
    assert_eq!(wanted("pkgsrc = { pkgpaths = {} }"), Some(Wanted::All));
    assert_eq!(wanted("pkgsrc = { basedir = '/p' }"), Some(Wanted::All));
    for unclear in [
        "pkgsrc = { pkgpaths = { '../x' } }",
        "pkgsrc = { pkgpaths = names() }",
        "pkgsrc = read()",
        "pkgsrc = {}\nif x then pkgsrc.pkgpaths = { 'a/b' } end",
    ] {
        assert_eq!(wanted(unclear), None, "{unclear}");
    }
}

#[test]
fn settings_in_conditional_code_are_unknown() {
    for text in [
        "if x then pkgsrc.make = '/m' elseif y then z() else pkgsrc.make = '/n' end",
        "for i = 1, 2 do if x then pkgsrc.make = '/m' end end",
        "while x do pkgsrc.make = '/m' end",
        "repeat pkgsrc.make = '/m' until f() == 1",
        "do pkgsrc.make = '/m' end",
        "function f() pkgsrc.make = '/m' end",
        "if x then y = { make = 1 } pkgsrc.make = '/m' end",
        "pkgsrc.make = (function() local make = '/m' return make end)()",
        "pkgsrc.make, x = f()",
        "pkgsrc['ma' .. 'ke'] = os.getenv('x')",
    ] {
        let text = format!("pkgsrc = {{ make = '/first' }}\n{text}\npkgsrc.prefix = '/p'\n");
        let config = config(&text);
        assert_eq!(config.get("pkgsrc.make"), None, "{text}");
        assert_eq!(config.get("pkgsrc.prefix").as_deref(), Some("/p"), "{text}");
    }
    let field = "make = '/m'\nif x then pkgsrc.make = '/n' end\n";
    assert_eq!(config(field).get("make").as_deref(), Some("/m"));
    let local = "pkgsrc = { make = '/first' }\nif x then local pkgsrc = 1 end\nlocal function f() end\n";
    assert_eq!(config(local).get("pkgsrc.make").as_deref(), Some("/first"));
}

#[test]
fn values_can_refer_to_earlier_ones() {
    let text = "local t = { a = { 'x', 'y' }, ['b c'] = 2, a2 = true }\n\
                x = t.a[2] .. t['b c'] .. [[\nz]]\ny, z = t.a2, t\nw = (\"a\")\nlocal l = 1\nl = 2\nv = l\n";
    let config = config(text);
    let get = |path| config.get(path);
    assert_eq!((get("x").as_deref(), get("y").as_deref()), (Some("y2z"), Some("true")));
    assert_eq!(
        (get("z.a.1").as_deref(), get("w").as_deref(), get("v").as_deref()),
        (Some("x"), Some("a"), Some("2"))
    );
    assert_eq!((get("l"), get("t"), get("z.q")), (None, None, None));
}

#[test]
fn malformed_and_growing_files_are_rejected() {
    assert_eq!(error("a = {\n1,\n"), "line 3: expected a value, found `the end of the file`");
    assert_eq!(error("a = 1 2"), "line 1: expected a statement, found `2`");
    assert_eq!(error("a"), "line 1: expected =, found `the end of the file`");
    assert_eq!(
        error(&format!("a = {}", "{".repeat(200))),
        "line 1: tables or brackets are nested too deeply"
    );
    assert!(error(&format!("a = {}", "(".repeat(200_000))).starts_with("line 1: tables or brackets"));
    assert!(error(&format!("a = {}1", "f{".repeat(200_000))).starts_with("line 1: tables or brackets"));
    assert!(
        error(&format!("a = {}", "function until ".repeat(50_000))).starts_with("line 1: tables or brackets")
    );
    assert!(error(&" ".repeat(TEXT_BYTES_MAX + 1)).starts_with("it has 1048577 bytes"));
    assert_eq!(error(&"a = 1\n".repeat(10_001)), "line 10001: too many assignments");
    let doubling = format!("a = {{ 1 }}\n{}", "a = { a, a }\n".repeat(60));
    assert!(config(&doubling).get("a").is_none());
    let text = format!("a = 'xx'\n{}", "a = a .. a\n".repeat(60));
    assert_eq!(reason(&text, "a"), "61: it is computed");
}

#[test]
fn the_table_has_every_name_once() {
    assert!(RULES.is_sorted_by(|(one, _), (other, _)| one < other));
}
