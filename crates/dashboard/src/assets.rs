//! Assets: the one stylesheet, the one script and the icon, under addresses that name their content.

use std::sync::LazyLock;

use http::header;
use sha2::{Digest as _, Sha256};

use crate::reply::DashboardReply;

const STYLE: &str = include_str!("../assets/dashboard.css");
const SCRIPT: &str = include_str!("../assets/dashboard.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// Where assets are.
const FOLDER: &str = "/ui/assets/";

/// The addresses of the assets.
#[derive(Debug)]
pub(crate) struct AssetAddresses {
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) icon: String,
}

/// The addresses of the assets of this release.
pub(crate) static ADDRESSES: LazyLock<AssetAddresses> = LazyLock::new(|| AssetAddresses {
    style: address(STYLE, "css"),
    script: address(SCRIPT, "js"),
    icon: address(ICON, "svg"),
});

fn address(content: &str, kind: &str) -> String {
    let hash = sluice_core::hex::encode(&Sha256::digest(content));
    format!("{FOLDER}{}.{kind}", hash.get(..16).unwrap_or(&hash))
}

/// The asset at a path.
pub(crate) fn at(path: &str) -> Option<DashboardReply> {
    let known = &*ADDRESSES;
    let all = [
        (&known.style, "text/css; charset=utf-8", STYLE),
        (&known.script, "text/javascript; charset=utf-8", SCRIPT),
        (&known.icon, "image/svg+xml", ICON),
    ];
    let (_, kind, content) = all.into_iter().find(|(address, ..)| *address == path)?;
    let reply = DashboardReply::new(200, kind, content);
    Some(reply.with(header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_the_script_is_small() {
        for text in [STYLE, SCRIPT, ICON] {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("@import"));
        }
        assert!(!STYLE.contains("url("), "a stylesheet without pictures");
        assert!(!SCRIPT.contains("eval(") && !SCRIPT.contains("new Function"));
        // Text compresses to less than half, and 20 KB is the limit after compression.
        assert!(SCRIPT.len() < 40_000, "{}", SCRIPT.len());
    }
}
