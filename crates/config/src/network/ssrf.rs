//! SSRF protection: addresses that requests must never reach.
//!
//! Takes an address; names the forbidden block that it lies in. Promise: only addresses of the public internet pass,
//! each in its plain form; an address inside another one (mapped, translated, tunnelled) never passes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, or a block of addresses, that configuration opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

/// The metadata addresses, where clouds give every machine its credentials.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// The metadata address of another cloud, inside a block that private networks use.
const ALIBABA: IpNetwork = IpNetwork { address: IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), bits: 32 };
/// The widest blocks that configuration can open.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 16;

impl IpNetwork {
    /// Parses `127.0.0.1` or `10.1.0.0/16`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad =
            || format!("`{}` is no address or block like `10.1.0.0/16`", text.chars().take(64).collect::<String>());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse::<u8>().map_err(|_| bad()))?;
        if bits > most { Err(bad()) } else { Ok(Self { address, bits }) }
    }

    /// Parses an address or block that configuration opens. A block that covers nearly everything, or a cloud's
    /// metadata address, is refused: no connection needs it.
    ///
    /// # Errors
    /// When it is not an address or block, or opens too much.
    pub fn opened(text: &str) -> Result<Self, String> {
        let net = Self::parse(text)?;
        if let Some(address) = METADATA.iter().find(|address| net.contains(**address)) {
            return Err(format!("`{net}` opens {address}, where a cloud hands out credentials; name smaller blocks"));
        }
        let least = if net.address.is_ipv4() { WIDEST_V4 } else { WIDEST_V6 };
        if net.bits < least || net == ALIBABA {
            return Err(format!("`{net}` opens nearly everything or a metadata service; name smaller blocks"));
        }
        Ok(net)
    }

    /// Whether an address lies in the block. An IPv4 address inside an IPv6 one does not count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32_u32.saturating_sub(u32::from(self.bits));
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128_u32.saturating_sub(u32::from(self.bits));
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == most { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.bits) }
    }
}

/// The forbidden block that an address lies in; nothing for the public internet.
#[must_use]
pub fn forbidden(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => forbidden_v4(address),
        IpAddr::V6(address) => forbidden_v6(address),
    }
}

/// Whether every address may be reached: public, or opened by configuration.
#[must_use]
pub fn all_reachable(addresses: &[IpAddr], opened: &[IpNetwork]) -> bool {
    let open = |address: &IpAddr| forbidden(*address).is_none() || opened.iter().any(|net| net.contains(*address));
    !addresses.is_empty() && addresses.iter().all(open)
}

type ForbiddenV4Block = ([u8; 4], u8, &'static str);

/// RFC 6890 and its successors, multicast, and the metadata address of a large cloud that is in none of these blocks.
const BLOCKS_V4: [ForbiddenV4Block; 17] = [
    ([0, 0, 0, 0], 8, "this network"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "shared by a carrier"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([168, 63, 129, 16], 32, "metadata"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "protocol assignments"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 31, 196, 0], 24, "sink holes"),
    ([192, 88, 99, 0], 24, "6to4 relays"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "benchmarks"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    let inside = |(block, bits, _): &&ForbiddenV4Block| {
        let shift = 32 - u32::from(*bits);
        address.to_bits().checked_shr(shift) == u32::from_be_bytes(*block).checked_shr(shift)
    };
    BLOCKS_V4.iter().find(inside).map(|(_, _, what)| *what)
}

fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, c, d, e, f, _, _] = address.segments();
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("loopback");
    }
    // An IPv4 address inside an IPv6 one is refused as such, wherever it leads.
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) => return Some("IPv4 mapped"),
        (0, 0, 0, 0, 0, 0) => return Some("IPv4 compatible"),
        (0, 0, 0, 0, 0xffff, 0) => return Some("IPv4 translated"),
        (0x64, 0xff9b, ..) => return Some("NAT64"),
        (0x2002, ..) => return Some("6to4"),
        (0x2001, 0, ..) => return Some("Teredo"),
        (_, _, _, _, 0 | 0x200, 0x5efe) => return Some("ISATAP"),
        _ => {}
    }
    match a {
        0xfc00..=0xfdff => Some("unique local"),
        0xfe80..=0xfeff => Some("link-local"),
        0xff00..=0xffff => Some("multicast"),
        0x2001 if b < 0x200 => Some("protocol assignments"),
        0x2001 if b == 0xdb8 => Some("documentation"),
        0x3fff if b < 0x1000 => Some("documentation"),
        0x2000..=0x3fff => None,
        _ => Some("not global"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(text: &str) -> Option<&'static str> {
        forbidden(text.parse().unwrap())
    }

    #[test]
    fn the_public_internet_passes() {
        for good in
            ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
        {
            assert_eq!(no(good), None, "{good}");
        }
    }

    #[test]
    fn every_other_part_of_the_world_does_not() {
        let bad = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2606:4700::5efe:7f00:1",
            "4000::1",
        ];
        for address in bad {
            assert!(no(address).is_some(), "{address}");
        }
    }

    #[test]
    fn one_bad_address_among_good_ones_closes_the_door() {
        let addresses = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert!(all_reachable(&addresses(&["1.1.1.1", "2606:4700::1111"]), &[]));
        assert!(!all_reachable(&addresses(&["1.1.1.1", "127.0.0.1"]), &[]));
        assert!(!all_reachable(&[], &[]));
        let opened = [IpNetwork::parse("127.0.0.1").unwrap()];
        assert!(all_reachable(&addresses(&["1.1.1.1", "127.0.0.1"]), &opened));
        assert!(!all_reachable(&addresses(&["127.0.0.2"]), &opened));
        assert!(!all_reachable(&addresses(&["::ffff:127.0.0.1"]), &opened), "a mapped address is another one");
    }

    #[test]
    fn blocks_read_and_hold_what_they_say() {
        let net = IpNetwork::parse("10.1.0.0/16").unwrap();
        assert!(net.contains("10.1.255.1".parse().unwrap()) && !net.contains("10.2.0.1".parse().unwrap()));
        assert!(IpNetwork::parse("0.0.0.0/0").unwrap().contains("9.9.9.9".parse().unwrap()));
        assert!(IpNetwork::parse("fd00::/8").unwrap().contains("fdff::1".parse().unwrap()));
        for bad in ["", "10.1", "10.0.0.0/33", "::/129", "10.0.0.0/x", "localhost"] {
            assert!(IpNetwork::parse(bad).is_err(), "{bad}");
        }
    }
}
