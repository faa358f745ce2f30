//! Words of the table `build`: how outputs are tested, and the wall around builds.

use serde::Deserialize;

/// The wall around builds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Isolation {
    /// A virtual machine.
    Vm,
}

/// How outputs are tested: `true`, `false` or `"apart"`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "TestWord")]
pub enum OutputTests {
    /// They are not.
    Never,
    /// As the last stage of their build.
    #[default]
    WithBuild,
    /// As a job of its own, which any worker may do that tests.
    Apart,
}

/// As it is written.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`true`, `false` or `\"apart\"`")]
enum TestWord {
    Flag(bool),
    Word(Apart),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Apart {
    Apart,
}

impl From<TestWord> for OutputTests {
    fn from(word: TestWord) -> OutputTests {
        match word {
            TestWord::Flag(false) => OutputTests::Never,
            TestWord::Flag(true) => OutputTests::WithBuild,
            TestWord::Word(Apart::Apart) => OutputTests::Apart,
        }
    }
}
