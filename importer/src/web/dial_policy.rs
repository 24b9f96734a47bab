//! The addresses that may be connected to.
//!
//! A worker in the namespace of the tenant who chose the address may connect to any. A program that requests addresses on
//! behalf of tenants, such as the controller that polls their sources, must not connect to its own machine, its link, and
//! the services that clouds offer to each machine there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::{Host, Url};

/// The addresses that may be connected to. Checked after names are resolved, for each connection, so also for what a
/// server redirects to and for the token service that a registry names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DialPolicy {
    #[default]
    Any,
    /// No loopback, link-local, multicast, unspecified, reserved or metadata address, in whatever IPv6 form it is written.
    Guarded(DialExceptions),
}

/// What an administrator adds to the fixed list of [`DialPolicy::Guarded`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialExceptions {
    /// Not connected to either: the cluster's own networks, for instance.
    pub deny: Vec<Cidr>,
    /// Connected to, although another rule refuses it.
    pub allow: Vec<Cidr>,
}

/// A network: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    /// How many bits of the address all members share.
    prefix_len: u8,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IP address or a network like 10.0.0.0/8")]
pub struct BadCidr {
    text: String,
}

/// Why an address is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedAddress {
    Loopback,
    /// The link that the machine is on. Most metadata services of clouds are there.
    LinkLocal,
    Multicast,
    /// No address, which the system takes for this machine.
    Unspecified,
    /// A service of a cloud's machine, broadcast, or never given to a machine.
    Reserved,
    /// In a network that the administrator has listed.
    Listed,
}

/// Addresses outside of link-local networks at which clouds serve metadata and credentials of a machine.
const METADATA_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
/// The same of IPv6: of Amazon's, Google's and Scaleway's clouds.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

impl DialPolicy {
    /// Whether `address` may be connected to.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        match self {
            Self::Any => Ok(()),
            Self::Guarded(exceptions) => {
                forms(address).into_iter().flatten().try_for_each(|form| exceptions.check(form))
            }
        }
    }

    /// Whether a proxy may be requested `url`: a name is resolved by the proxy, so only what is certain without that is
    /// refused here.
    pub(super) fn check_unresolved(&self, url: &Url) -> Result<(), DeniedAddress> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(name)) if is_localhost(name) => {
                self.check(Ipv4Addr::LOCALHOST.into())
            }
            _ => Ok(()),
        }
    }
}

impl DialExceptions {
    fn check(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        let is_in = |all: &[Cidr]| all.iter().any(|one| one.contains(address));
        if is_in(&self.allow) {
            return Ok(());
        }
        let special = match address {
            IpAddr::V4(address) => special_v4(address),
            IpAddr::V6(address) => special_v6(address),
        };
        match special {
            Some(kind) => Err(kind),
            None if is_in(&self.deny) => Err(DeniedAddress::Listed),
            None => Ok(()),
        }
    }
}

/// The address, and the IPv4 address that it is a form of: a router or the system itself translates the one to the other.
fn forms(address: IpAddr) -> [Option<IpAddr>; 2] {
    let IpAddr::V6(v6) = address else { return [Some(address), None] };
    if let Some(mapped) = v6.to_ipv4_mapped() {
        return [Some(mapped.into()), None];
    }
    [Some(address), embedded_v4(v6).map(IpAddr::V4)]
}

/// The IPv4 address in an IPv6 address, where it has one.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // `::1` and `::` are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-compatible (RFC 4291), and translated (RFC 2765).
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(join(high, low)),
        // NAT64: the well-known prefix (RFC 6052), and the one for local use (RFC 8215).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, .., high, low] => {
            Some(join(high, low))
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(join(high, low)),
        // Teredo (RFC 4380): the client's address is inverted.
        [0x2001, 0, .., high, low] => Some(join(!high, !low)),
        // ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        _ => None,
    }
}

fn special_v4(address: Ipv4Addr) -> Option<DeniedAddress> {
    match address.octets() {
        [0, ..] => Some(DeniedAddress::Unspecified),
        [127, ..] => Some(DeniedAddress::Loopback),
        [169, 254, ..] => Some(DeniedAddress::LinkLocal),
        [224..=239, ..] => Some(DeniedAddress::Multicast),
        // Protocol assignments, one of which is a metadata service; the future, and broadcast.
        [192, 0, 0, _] | [240..=255, ..] => Some(DeniedAddress::Reserved),
        _ if METADATA_V4.contains(&address) => Some(DeniedAddress::Reserved),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<DeniedAddress> {
    if address.is_loopback() {
        Some(DeniedAddress::Loopback)
    } else if address.is_unspecified() {
        Some(DeniedAddress::Unspecified)
    } else if address.is_unicast_link_local() {
        Some(DeniedAddress::LinkLocal)
    } else if address.is_multicast() {
        Some(DeniedAddress::Multicast)
    } else {
        METADATA_V6.contains(&address).then_some(DeniedAddress::Reserved)
    }
}

/// RFC 6761: the name and everything below it are this machine.
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

impl Cidr {
    /// Whether the address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (ours, theirs, width) = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        let differs: u128 = ours ^ theirs;
        differs.checked_shr(width - u32::from(self.prefix_len)).unwrap_or(0) == 0
    }

    /// A list, separated by commas. Empty entries count for nothing.
    ///
    /// # Errors
    /// [`BadCidr`], of the first entry that is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, BadCidr> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::parse).collect()
    }

    /// What [`Self::parse_list`] reads.
    pub fn join(list: &[Self]) -> String {
        list.iter().map(Self::to_string).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr { text: text.chars().take(64).collect() };
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = prefix_len.unwrap_or(width);
        if prefix_len > width { Err(bad()) } else { Ok(Self { address, prefix_len }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_len)
    }
}

impl fmt::Display for DeniedAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "an unspecified address",
            Self::Reserved => "a reserved address",
            Self::Listed => "an address of a denied network",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::DeniedAddress::{LinkLocal, Listed, Loopback, Multicast, Reserved, Unspecified};
    use super::*;

    fn guarded(deny: &str, allow: &str) -> DialPolicy {
        let list = |text| Cidr::parse_list(text).unwrap();
        DialPolicy::Guarded(DialExceptions { deny: list(deny), allow: list(allow) })
    }

    #[test]
    fn addresses_of_this_machine_and_its_link_are_denied_in_each_form() {
        let policy = guarded("", "");
        for (address, expected) in [
            ("127.0.0.1", Some(Loopback)),
            ("127.255.0.9", Some(Loopback)),
            ("0.0.0.0", Some(Unspecified)),
            ("0.1.2.3", Some(Unspecified)),
            ("169.254.169.254", Some(LinkLocal)),
            ("224.0.0.1", Some(Multicast)),
            ("255.255.255.255", Some(Reserved)),
            ("240.0.0.1", Some(Reserved)),
            ("192.0.0.192", Some(Reserved)),
            ("100.100.100.200", Some(Reserved)),
            ("168.63.129.16", Some(Reserved)),
            ("10.98.0.2", None),
            ("192.168.1.1", None),
            ("100.64.0.1", None),
            ("8.8.8.8", None),
            ("::1", Some(Loopback)),
            ("::", Some(Unspecified)),
            ("fe80::1", Some(LinkLocal)),
            ("febf::1", Some(LinkLocal)),
            ("ff02::1", Some(Multicast)),
            ("fd00:ec2::254", Some(Reserved)),
            ("fd20:ce::254", Some(Reserved)),
            ("fd00::1", None),
            ("2001:db8::1", None),
            ("2606:4700::1111", None),
            ("::ffff:127.0.0.1", Some(Loopback)),
            ("::ffff:169.254.169.254", Some(LinkLocal)),
            ("::ffff:8.8.8.8", None),
            ("::127.0.0.1", Some(Loopback)),
            ("::ffff:0:127.0.0.1", Some(Loopback)),
            ("64:ff9b::169.254.169.254", Some(LinkLocal)),
            ("64:ff9b::8.8.8.8", None),
            ("64:ff9b:1::127.0.0.1", Some(Loopback)),
            ("2002:7f00:1::", Some(Loopback)),
            ("2002:a9fe:a9fe::1", Some(LinkLocal)),
            ("2002:808:808::1", None),
            ("2001:0:1:2:3:4:80ff:fffe", Some(Loopback)),
            ("2001:db8::5efe:127.0.0.1", Some(Loopback)),
            ("2001:db8::200:5efe:169.254.169.254", Some(LinkLocal)),
        ] {
            let found = policy.check(address.parse().unwrap()).err();
            assert_eq!(found, expected, "{address}");
            assert_eq!(DialPolicy::Any.check(address.parse().unwrap()), Ok(()));
        }
    }

    #[test]
    fn listed_networks_are_denied_and_exceptions_win() {
        let policy = guarded("10.96.0.0/12, fd12::/16", "10.98.0.2,127.0.0.1/32");
        for (address, expected) in [
            ("10.96.0.1", Some(Listed)),
            ("10.111.255.255", Some(Listed)),
            ("10.112.0.1", None),
            ("10.98.0.2", None),
            ("::ffff:10.96.0.1", Some(Listed)),
            ("64:ff9b::10.96.0.1", Some(Listed)),
            ("64:ff9b::10.98.0.2", None),
            ("2002:a60:1::", Some(Listed)),
            ("fd12::1", Some(Listed)),
            ("fd13::1", None),
            ("127.0.0.1", None),
            ("127.0.0.2", Some(Loopback)),
            ("::1", Some(Loopback)),
        ] {
            assert_eq!(policy.check(address.parse().unwrap()).err(), expected, "{address}");
        }
    }

    #[test]
    fn a_network_is_an_address_and_a_length_that_fits() {
        for (text, shown) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.0.0.1", Some("10.0.0.1/32")),
            ("fd00::/8", Some("fd00::/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.0.0.0/33", None),
            ("fd00::/129", None),
            ("10.0.0.0/", None),
            ("host", None),
            ("", None),
        ] {
            let found = text.parse::<Cidr>().map(|cidr| cidr.to_string()).ok();
            assert_eq!(found.as_deref(), shown, "{text}");
        }
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(
            all.contains("255.1.2.3".parse().unwrap()) && !all.contains("::1".parse().unwrap())
        );
        assert!(Cidr::parse_list("10.0.0.0/8,x").is_err());
        assert_eq!(Cidr::parse_list(" , ").unwrap(), []);
        let list = Cidr::parse_list("10.0.0.0/8, ::1").unwrap();
        assert_eq!(Cidr::parse_list(&Cidr::join(&list)).unwrap(), list);
    }

    #[test]
    fn denied_addresses_are_not_requested_from_a_proxy() {
        let policy = guarded("", "");
        for (url, is_denied) in [
            ("http://169.254.169.254/latest", true),
            ("http://2130706433/", true),
            ("http://0x7f.1/", true),
            ("https://[::ffff:7f00:1]/", true),
            ("http://LOCALHOST./", true),
            ("http://a.localhost/", true),
            ("http://example.com/", false),
            ("http://10.0.0.1/", false),
        ] {
            let found = policy.check_unresolved(&Url::parse(url).unwrap());
            assert_eq!(found.is_err(), is_denied, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_ipv6_form_of_a_denied_address_is_connected_to(bits: u32) {
            let (policy, address) = (guarded("10.0.0.0/8", ""), Ipv4Addr::from_bits(bits));
            let expected = policy.check(address.into()).is_err();
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            prop_assume!(bits > 1);
            for form in [
                address.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert_eq!(policy.check(form.into()).is_err(), expected, "{}", form);
            }
        }
    }
}
