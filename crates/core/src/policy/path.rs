//! Paths in the form that policy compares: absolute, lexically normal, whole components.
//!
//! Takes the text of a path argument; gives its one normal spelling or says why there is none. Promise:
//! `/workspace/ab` is never below `/workspace/a`, and no spelling of `..` gets a path past a prefix.
//! The kernel's handling of links is checked again on the opened file.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::suggest::escape;

/// The longest path, in bytes; the limit of Linux.
const LENGTH: usize = 4096;
/// Most components a prefix in a rule can have.
pub(crate) const DEPTH: usize = 32;

/// Why a path cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PolicyPathError {
    /// An empty text, or not a text.
    #[error("the path is not a text, or an empty one")]
    Empty,
    /// It depends on an unknown directory.
    #[error("the path is relative")]
    Relative,
    /// More `..` than there are directories.
    #[error("the path climbs above the root")]
    Escapes,
    /// A NUL byte.
    #[error("the path has a NUL byte in it")]
    Nul,
    /// Longer than a path can be.
    #[error("the path is longer than 4096 bytes")]
    TooLong,
}

/// An absolute path without `.`, `..`, empty components or a slash at its end.
#[derive(Debug, Clone)]
pub(crate) struct NormalPath<'t> {
    text: Cow<'t, str>,
    /// Which of the first 64 bytes are slashes, without the first: there components end.
    slashes: u64,
    /// How many components there are.
    depth: u16,
}

impl<'t> NormalPath<'t> {
    /// Normalises without looking at any file system.
    #[inline]
    pub(crate) fn new(text: &'t str) -> Result<Self, PolicyPathError> {
        if text.starts_with('/')
            && text.len() <= LENGTH
            && let Some(normal) = Self::borrow_if_normal(text)
        {
            return Ok(normal);
        }
        Self::normalise(text)
    }

    /// The same for a path that is not normal yet.
    #[cold]
    fn normalise(text: &'t str) -> Result<Self, PolicyPathError> {
        if text.is_empty() {
            return Err(PolicyPathError::Empty);
        }
        if text.len() > LENGTH {
            return Err(PolicyPathError::TooLong);
        }
        if !text.starts_with('/') {
            return Err(PolicyPathError::Relative);
        }
        if text.contains('\0') {
            return Err(PolicyPathError::Nul);
        }
        let mut components: Vec<&str> = Vec::new();
        for component in text.split('/') {
            match component {
                "" | "." => {}
                ".." => drop(components.pop().ok_or(PolicyPathError::Escapes)?),
                name => components.push(name),
            }
        }
        let mut spelled = String::with_capacity(text.len());
        for component in &components {
            spelled.push('/');
            spelled.push_str(component);
        }
        if spelled.is_empty() {
            spelled.push('/');
        }
        let found = NormalPath::borrow_if_normal(&spelled).map(|normal| (normal.slashes, normal.depth));
        let (slashes, depth) = found.ok_or(PolicyPathError::Nul)?;
        Ok(Self { text: Cow::Owned(spelled), slashes, depth })
    }

    /// One pass over a path that is normal already, as nearly all are: nothing is copied.
    ///
    /// Eight bytes at a time: slashes are found by arithmetic, and only what follows them is looked at.
    #[inline]
    fn borrow_if_normal(text: &'t str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut path = Self { text: Cow::Borrowed(text), slashes: 0, depth: 0 };
        let mut carried = 0;
        for (n, block) in bytes.chunks(64).enumerate() {
            let signs = PathByteMasks::of(block);
            let after_slash = signs.slashes << 1 | carried;
            if signs.nuls || after_slash & signs.slashes != 0 {
                return None;
            }
            if after_slash & signs.dots != 0 && has_dots(bytes.get(n * 64..)?, after_slash & signs.dots) {
                return None;
            }
            carried = signs.slashes >> 63;
            path.depth += signs.slashes.count_ones() as u16;
            if n == 0 {
                path.slashes = signs.slashes & !1;
            }
        }
        match bytes {
            [_] => path.depth = 0,
            [.., b'/'] => return None,
            _ => {}
        }
        Some(path)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is this normal path or below it.
    #[inline]
    pub(crate) fn is_within(&self, prefix: &str) -> bool {
        let (own, prefix) = (self.text.as_bytes(), prefix.as_bytes());
        // The end of the prefix distinguishes best, so it is checked first.
        matches!(own.get(prefix.len()), None | Some(b'/'))
            && own.get(..prefix.len()).is_some_and(|own| bytes_equal(own, prefix))
            || prefix == b"/"
    }

    /// The path cut to its first `depth` components; `None` if it has fewer.
    #[inline]
    fn ancestor_at_depth(&self, depth: usize) -> Option<&str> {
        if depth == 0 || depth > usize::from(self.depth) {
            return None;
        }
        if depth == usize::from(self.depth) {
            return Some(&self.text);
        }
        let left = (1..depth).fold(self.slashes, |slashes, _| slashes & slashes.wrapping_sub(1));
        if left != 0 {
            return self.text.get(..left.trailing_zeros() as usize);
        }
        let (end, _) = self.text.match_indices('/').nth(depth)?;
        self.text.get(..end)
    }

    fn components(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|component| !component.is_empty())
    }
}

/// What up to 64 bytes hold, one bit for each byte.
#[derive(Default)]
struct PathByteMasks {
    slashes: u64,
    dots: u64,
    nuls: bool,
}

impl PathByteMasks {
    #[inline]
    fn of(block: &[u8]) -> Self {
        let mut signs = Self::default();
        let (words, rest) = block.as_chunks::<8>();
        for (n, word) in words.iter().enumerate() {
            signs.add(*word, n * 8);
        }
        match block.last_chunk::<8>() {
            _ if rest.is_empty() => {}
            // Some bytes are tested twice, which changes nothing.
            Some(word) => signs.add(*word, block.len() - 8),
            None => {
                // Filled up with a byte that is none of the three.
                let mut word = [1; 8];
                word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                signs.add(word, 0);
            }
        }
        signs
    }

    #[inline]
    fn add(&mut self, word: [u8; 8], offset: usize) {
        let word = u64::from_le_bytes(word);
        self.nuls |= zero_bytes(word) != 0;
        self.slashes |= gathered(zero_bytes(word ^ SLASHES)) << offset;
        self.dots |= gathered(zero_bytes(word ^ DOTS)) << offset;
    }
}

/// The top bits of eight bytes side by side.
const fn gathered(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Whether two texts are equal. Both are short: a library call would take longer than the comparison.
#[inline]
pub(crate) fn bytes_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(end), Some(other_end)) => {
            let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
            let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
            word(end) == word(other_end) && words.into_iter().all(|(own, other)| word(own) == word(other))
        }
        _ => one.iter().zip(other).all(|(own, other)| own == other),
    }
}

/// `.` in every byte.
const DOTS: u64 = u64::from_le_bytes([b'.'; 8]);
/// `/` in every byte.
const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);

/// The top bit of every byte that is zero, and no other bit.
const fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

/// Whether a component that begins at one of these places is `.` or `..`, which a normal path does not have.
#[cold]
fn has_dots(bytes: &[u8], mut places: u64) -> bool {
    while places != 0 {
        let component = bytes.get(places.trailing_zeros() as usize..).unwrap_or_default();
        if matches!(component, b"." | b".." | [b'.', b'/', ..] | [b'.', b'.', b'/', ..]) {
            return true;
        }
        places &= places - 1;
    }
    false
}

/// The depths that occur, so that a lookup tries only those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathDepths(u64);

impl PathDepths {
    pub(crate) fn add(&mut self, prefix: &str) {
        self.0 |= 1 << depth_of(prefix);
    }

    /// The ancestors of a path (itself included) that could be a stored prefix, shortest first.
    #[inline]
    pub(crate) fn ancestors<'p>(self, path: &'p NormalPath<'_>) -> impl Iterator<Item = &'p str> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            while left != 0 {
                let depth = left.trailing_zeros() as usize;
                left &= left - 1;
                if depth == 0 {
                    return Some("/");
                }
                if let Some(ancestor) = path.ancestor_at_depth(depth) {
                    return Some(ancestor);
                }
            }
            None
        })
    }
}

/// Components of a normal path.
pub(crate) fn depth_of(prefix: &str) -> usize {
    if prefix == "/" { 0 } else { prefix.bytes().filter(|b| *b == b'/').count() }
}

/// Directories; a path is inside when it is one of them or below one.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathPrefixes {
    set: HashSet<Box<str>>,
    depths: PathDepths,
    /// As the file lists them, for people and for the comparison of rules.
    pub(crate) listed: Vec<Box<str>>,
}

impl PathPrefixes {
    pub(crate) fn add(&mut self, prefix: &str) {
        self.depths.add(prefix);
        self.listed.push(prefix.into());
        self.set.insert(prefix.into());
    }

    pub(crate) fn contains(&self, path: &NormalPath<'_>) -> bool {
        self.depths.ancestors(path).any(|ancestor| self.set.contains(ancestor))
    }
}

/// A path pattern: `*` and `?` inside a component, `**` for any number of components.
#[derive(Debug, Clone)]
pub(crate) struct PathGlobPattern {
    pub(crate) text: Box<str>,
    parts: Vec<Box<str>>,
}

impl PathGlobPattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("a path pattern starts with `/`".into());
        }
        if text.len() > LENGTH {
            return Err("a path pattern has at most 4096 bytes".into());
        }
        if let Some(sign) = text.chars().find(|c| "[]{}!\\".contains(*c)) {
            return Err(format!("`{sign}` means nothing in a path pattern: there are `*`, `?` and `**`"));
        }
        let parts: Vec<Box<str>> = text.split('/').filter(|part| !part.is_empty()).map(Into::into).collect();
        for part in &parts {
            if matches!(&**part, "." | "..") {
                return Err("`.` and `..` never occur in a normalised path, so this would never match".into());
            }
            if part.contains("**") && &**part != "**" {
                return Err(format!("`**` stands alone between slashes, not in `{}`", escape(part)));
            }
        }
        Ok(Self { text: text.into(), parts })
    }

    pub(crate) fn matches(&self, path: &NormalPath<'_>) -> bool {
        let names: Vec<&str> = path.components().collect();
        match_with_stars(&self.parts, &names, |part| &**part == "**", |part, name| match_name(part, name))
    }
}

fn match_name(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    match_with_stars(&pattern, &name, |sign| *sign == '*', |sign, c| *sign == '?' || sign == c)
}

/// Matches with stars that stand for any run, going back only to the last star: at most |pattern| x |name| steps.
fn match_with_stars<P, N>(
    pattern: &[P],
    name: &[N],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &N) -> bool,
) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(item) = name.get(n) {
        match pattern.get(p) {
            Some(sign) if is_star(sign) => {
                retry = Some((p, n));
                p += 1;
            }
            Some(sign) if fits(sign, item) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    p = star + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(is_star))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(text: &str) -> Result<String, PolicyPathError> {
        NormalPath::new(text).map(|path| path.as_str().to_owned())
    }

    #[test]
    fn a_path_has_one_spelling() {
        for (text, expected) in [
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b"),
            ("//a//b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/../../c/.", "/c"),
            ("/", "/"),
            ("/.", "/"),
            ("/a/..", "/"),
            ("/...", "/..."),
            ("/a/..b", "/a/..b"),
        ] {
            assert_eq!(normal(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(normal(""), Err(PolicyPathError::Empty));
        assert_eq!(normal("a/b"), Err(PolicyPathError::Relative));
        assert_eq!(normal("~/b"), Err(PolicyPathError::Relative));
        assert_eq!(normal("/a/../../etc"), Err(PolicyPathError::Escapes));
        assert_eq!(normal("/a\0b"), Err(PolicyPathError::Nul));
        assert_eq!(normal(&"/a".repeat(3000)), Err(PolicyPathError::TooLong));
    }

    #[test]
    fn a_prefix_covers_itself_and_what_is_below_and_no_neighbour() {
        let mut prefixes = PathPrefixes::default();
        prefixes.add("/workspace/a");
        for (path, inside) in [
            ("/workspace/a", true),
            ("/workspace/a/", true),
            ("/workspace/a/b/c", true),
            ("/workspace/ab", false),
            ("/workspace", false),
            ("/workspace/a/../b", false),
            ("/x/../workspace/a/b", true),
            ("/workspace/a/../../etc/passwd", false),
        ] {
            assert_eq!(prefixes.contains(&NormalPath::new(path).unwrap()), inside, "{path}");
            assert_eq!(NormalPath::new(path).unwrap().is_within("/workspace/a"), inside, "{path}");
            assert!(NormalPath::new(path).unwrap().is_within("/"));
        }
        let mut root = PathPrefixes::default();
        root.add("/");
        assert!(root.contains(&NormalPath::new("/anything").unwrap()) && root.contains(&NormalPath::new("/").unwrap()));
    }

    #[test]
    fn deep_paths_stay_inside() {
        let mut prefixes = PathPrefixes::default();
        prefixes.add("/a/b");
        assert!(prefixes.contains(&NormalPath::new(&format!("/a/b{}", "/x".repeat(500))).unwrap()));
        assert!(prefixes.contains(&NormalPath::new(&format!("/a/b{}/.", "/x".repeat(500))).unwrap()));
        let deep = "/d".repeat(DEPTH);
        let mut prefixes = PathPrefixes::default();
        prefixes.add(&deep);
        assert!(prefixes.contains(&NormalPath::new(&deep).unwrap()));
        assert!(prefixes.contains(&NormalPath::new(&format!("{deep}/x")).unwrap()));
        assert!(!prefixes.contains(&NormalPath::new(&format!("{deep}x")).unwrap()));
        assert!(!prefixes.contains(&NormalPath::new(&"/d".repeat(DEPTH - 1)).unwrap()));
    }

    #[test]
    fn stars_stay_inside_their_component() {
        let matches =
            |glob: &str, path: &str| PathGlobPattern::new(glob).unwrap().matches(&NormalPath::new(path).unwrap());
        assert!(matches("/w/*.md", "/w/a.md"));
        assert!(!matches("/w/*.md", "/w/x/a.md"));
        assert!(matches("/w/**/*.md", "/w/a.md"));
        assert!(matches("/w/**/*.md", "/w/x/y/a.md"));
        assert!(matches("/w/**", "/w"));
        assert!(matches("/w/?", "/w/é"));
        assert!(!matches("/w/?", "/w/ab"));
        assert!(matches("/**/secret/**/x", "/a/secret/b/secret/c/x"));
        assert!(!matches("/w/*.md", "/w/../etc/a.md"));
        for bad in ["w/*", "/w/[ab]", "/w/a**", "/w/../x", "/w/{a,b}"] {
            assert!(PathGlobPattern::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in "(/|/\\.|/\\.\\.|/a|/b|/\u{e9}){0,12}") {
            if let Ok(once) = NormalPath::new(&text) {
                let again = NormalPath::new(once.as_str()).unwrap();
                prop_assert_eq!(once.as_str(), again.as_str());
                prop_assert_eq!((once.depth, once.slashes), (again.depth, again.slashes));
            }
        }
    }
}
