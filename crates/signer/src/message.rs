//! What a coordinator asks of a signer, and its answers: frames of JSON, compressed by zstd.

use kilnyard_model::provenance::Signed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// The version of the messages. A signer answers to this one alone.
pub const VERSION: u32 = 2;

/// The largest frame, in bytes.
const FRAME_BYTES_MAX: u32 = 256 << 20;
/// The most bytes that a frame unpacks to. The indexes of all of Debian have some 100 MB.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// A question to a signer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The version of the messages.
    pub version: u32,
    /// The repository that it is about, by its name in the signer's policy.
    pub repository: String,
    /// The question itself.
    pub ask: Ask,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// The keys of the repository.
    Keys,
    /// Which indexes the signer remembers of a series.
    Memory {
        /// A codename, or `packages`.
        series: String,
    },
    /// Remember a generation that was signed with one of the repository's keys before. Counts only while the signer
    /// remembers none of this series.
    Adopt {
        /// The generation, with whole indexes.
        generation: Generation,
        /// The detached signature of its text.
        signature: String,
    },
    /// Which of these indexes and commits the signer has not seen. Those that it wants are shown with [`Ask::Sources`].
    Evidence {
        /// What each is asked for by: the SHA-256 of an index, or that of a commit's id and a folder in it.
        keys: Vec<String>,
    },
    /// Remember what vouches for sources.
    Sources(Evidence),
    /// Sign a generation. If packages are new, the answer is [`Answer::Wanted`].
    Generation(Generation),
    /// The builds that the signer wanted; then it signs the generation.
    Builds {
        /// All builds of the packages that it named.
        builds: Vec<Build>,
    },
    /// Sign packages of a pkgsrc tree, each by the text `+PKG_HASH` of its blocks.
    Packages {
        /// The packages, by build.
        builds: Vec<BuildTexts>,
    },
    /// Sign packages of RPM, each by its main header. Each signature is one packet of OpenPGP by the first key of the repository, in
    /// hexadecimal.
    Headers {
        /// The packages, by build; their texts are the headers, in hexadecimal.
        builds: Vec<BuildTexts>,
    },
    /// Sign a `.dsc` or `.changes` file.
    Document {
        /// Its text.
        text: String,
    },
}

/// What vouches for sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// An archive's index.
    Index(SourceIndex),
    /// A commit of a tree.
    Commit(SourceCommit),
}

/// A folder with a source in a signed commit of git.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceCommit {
    /// The text of the commit.
    pub commit: String,
    /// The folder, below the root of the tree: empty for the root.
    pub path: String,
    /// The trees and files that lead to what the folder says of its source, each in hexadecimal.
    pub objects: Vec<String>,
}

/// An index of sources, with what vouches for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceIndex {
    /// The archive's `InRelease`.
    pub release: String,
    /// The path of the index there, such as `main/source/Sources`.
    pub path: String,
    /// The text of the index.
    pub text: String,
}

/// Packages of a build to be signed, each for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildTexts {
    /// The build, with the outputs that these packages are.
    pub build: Build,
    /// The text of each output, in their order.
    pub texts: Vec<PackageText>,
}

/// A package to be signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageText {
    /// The text that is signed.
    pub text: String,
    /// The name of its file.
    pub file: String,
}

/// A generation of a repository.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// A codename, or `packages`.
    pub series: String,
    /// The kind of text.
    pub form: Form,
    /// The text to sign.
    pub text: String,
    /// All indexes that the text names, as changes.
    pub indexes: Vec<Change>,
}

/// The kinds of texts that vouch for a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// `Release` of an apt repository.
    Release,
    /// The list of checksums of a pkgsrc repository.
    Checksums,
    /// A text that names lists of packages by digest.
    Lists,
}

/// An index, as a change of one that the signer remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its path below the generation, without the suffix of a compressed form.
    pub path: String,
    /// The SHA-256 of the text that it changes; absent if the index is whole.
    pub base: Option<String>,
    /// The new text: parts of the base, and new stanzas.
    pub edits: Vec<Edit>,
}

/// A step through the stanzas of a base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// This many stanzas of the base, from the next one on.
    Keep(u32),
    /// Leaves out this many stanzas of the base.
    Drop(u32),
    /// New text.
    Add(String),
}

/// A build that packages are from: the chain from its order to its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The source package, or the package's path in the tree.
    pub source: String,
    /// The name of the package in the order. In an apt repository, it is the source's.
    pub package: String,
    /// The names of binary packages that the source declares.
    pub declared: Vec<String>,
    /// The outputs that are new in the repository.
    pub outputs: Vec<Built>,
    /// What the worker signed; absent if the yard's own machine built it.
    pub statement: Option<Signed>,
}

/// An output of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Built {
    /// The SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// The digest of its file as the index names it: SHA-256 in an apt repository; in one of pkgsrc, SHA-512, or the SHA-256 of the
    /// text `+PKG_HASH` that its own signature signs; in one of RPM, SHA-256, after it got a signature.
    pub listed: String,
    /// The SHA-256 of the header that its own signature signs, in an RPM repository; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The paths of its files, sorted; absent if they are not known.
    pub files: Option<Vec<String>>,
}

/// An answer of a signer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The keys of the repository.
    Keys {
        /// All certificates, armored, one after another.
        armored: String,
        /// Each key, in the order of the policy.
        keys: Vec<KeyState>,
        /// The certificates of the X.509 key that signs packages, in PEM; absent if the keys of the repository do.
        #[serde(default)]
        packages: Option<String>,
        /// Why not all keys can sign now; absent if they can.
        #[serde(default)]
        trouble: Option<String>,
    },
    /// What is remembered of a series: the SHA-256 of each index, by path. Empty before the first signature.
    Memory {
        /// The indexes.
        indexes: BTreeMap<String, String>,
    },
    /// The generation is remembered.
    Adopted,
    /// What the signer wants to see of what vouches for sources.
    Evidence {
        /// The key of each.
        wanted: Vec<String>,
    },
    /// The signer wants the builds of these packages.
    Wanted {
        /// The name of each, and its architecture, or version in a pkgsrc repository.
        packages: Vec<(String, String)>,
    },
    /// Signed.
    Signed {
        /// The cleartext-signed message, if the text needs one.
        clear: Option<String>,
        /// An armored detached signature.
        detached: String,
    },
    /// The packages that are signed.
    Packages {
        /// An armored detached signature of each text, or one of PKCS #7 in PEM, in their order; none of one that is refused.
        signatures: Vec<Option<String>>,
        /// Why packages are refused.
        refusals: Vec<Refusal>,
    },
    /// Not signed: the reasons, one for each package or fault.
    Refused {
        /// At least one.
        refusals: Vec<Refusal>,
    },
    /// Not signed: the signer could not.
    Failed {
        /// A clause that names the cause.
        reason: String,
    },
}

/// A key of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyState {
    /// Its name in the policy.
    pub name: String,
    /// The fingerprint of its primary key, in upper-case hexadecimal.
    pub fingerprint: String,
    /// Where the private key is: `file`, `pkcs11`, `gpg-agent`, or `x509-file` and `x509-pkcs11` for packages.
    pub kind: String,
    /// When it can no longer sign, in seconds since 1970; absent if it does not expire.
    pub expires: Option<i64>,
    /// Why it cannot sign now; absent if it can.
    pub trouble: Option<String>,
}

/// Why something is not signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Names the refusal for an approval, if a person can approve it.
    pub id: Option<String>,
    /// The binary package, if it is about one.
    pub package: Option<String>,
    /// The architecture of that package, or its version in a pkgsrc repository.
    #[serde(default)]
    pub variant: Option<String>,
    /// The rule.
    pub rule: Rule,
    /// A sentence without its full stop.
    pub reason: String,
}

/// The rules of a signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The text is not what it must be: its form, its date, or the indexes that it names.
    Text,
    /// The policy does not allow it: repository, series, name, rate, hours.
    Policy,
    /// No build explains the package, or its source is another one.
    NoBuild,
    /// No archive or tree of the policy has the source.
    Source,
    /// The source does not declare the package.
    Undeclared,
    /// The version is below one that was signed.
    VersionBelow,
    /// The version was signed with another content.
    OtherContent,
    /// The content was signed before, and replaced.
    Replayed,
    /// Another source owns the name.
    OtherOwner,
    /// Another package has a file, and the package does not say that it replaces it.
    FileTakenOver,
    /// A core package, from a worker that the policy does not trust with these.
    Core,
    /// The worker did not sign this, or is not approved at the signer.
    Worker,
    /// A person has to approve it.
    Approval,
}

impl Rule {
    /// Whether a person can approve what the rule refuses.
    pub fn is_approvable(self) -> bool {
        !matches!(self, Rule::Text | Rule::Policy | Rule::Worker)
    }
}

/// Writes a frame.
///
/// # Errors
/// The other end is gone, or the message is too large.
pub fn write(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let packed = zstd::encode_all(&text[..], 3)?;
    let length = u32::try_from(packed.len()).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the message is too large"))?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(&packed)?;
    out.flush()
}

/// Reads a frame; `None` if the other end is gone between two frames.
///
/// # Errors
/// The frame is too large, incomplete, or not such a message.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    let mut filled = 0;
    while filled < length.len() {
        match from.read(&mut length[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_be_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("the frame is too large"));
    }
    // Grows with what arrives, not with what is announced.
    let mut packed = Vec::new();
    if from.take(u64::from(length)).read_to_end(&mut packed)? != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    parse(&packed).map(Some)
}

/// Parses the content of a frame.
pub fn parse<M: DeserializeOwned>(packed: &[u8]) -> io::Result<M> {
    let mut text = Vec::new();
    let unpacked = zstd::Decoder::with_buffer(packed)?.take(UNPACKED_BYTES_MAX + 1).read_to_end(&mut text)?;
    if unpacked as u64 > UNPACKED_BYTES_MAX {
        return Err(io::Error::other("the frame unpacks to too much"));
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}
