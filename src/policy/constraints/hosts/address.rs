//! Which addresses are public.

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

/// IANA's special-purpose registry (RFC 6890 and what was added), multicast and reserved space, and Azure's metadata address.
static NOT_PUBLIC_V4: [Ipv4Net; 18] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 31, 196, 0, 24),
    v4(192, 52, 193, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(192, 175, 48, 0, 24),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 3),
    v4(168, 63, 129, 16, 32),
];

const fn v6(a: u16, b: u16, c: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), bits)
}

/// Only 2000::/3 is global unicast; of that, these are not: Teredo and the other IETF assignments, documentation, AS112,
/// and the old 6bone.
static NOT_PUBLIC_V6: [Ipv6Net; 5] = [
    v6(0x2001, 0, 0, 23),
    v6(0x2001, 0xdb8, 0, 32),
    v6(0x2620, 0x4f, 0x8000, 48),
    v6(0x3ffe, 0, 0, 16),
    v6(0x3fff, 0, 0, 20),
];
static GLOBAL: Ipv6Net = v6(0x2000, 0, 0, 3);
/// NAT64 (RFC 6052), where the last 32 bits are an IPv4 address.
static NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// Whether an address is globally reachable unicast, and if it carries an IPv4 address, whether that is.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&a)),
        IpAddr::V6(a) => is_public_v6(a),
    }
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let low = |high: u16, low: u16| {
        let bits = u32::from(high) << 16 | u32::from(low);
        is_public(IpAddr::V4(Ipv4Addr::from_bits(bits)))
    };
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public(IpAddr::V4(mapped));
    }
    if NAT64.contains(&address) {
        return low(s[6], s[7]);
    }
    if !GLOBAL.contains(&address) || NOT_PUBLIC_V6.iter().any(|net| net.contains(&address)) {
        return false;
    }
    // 6to4 (RFC 3056) and ISATAP (RFC 5214).
    let six_to_four = s[0] != 0x2002 || low(s[1], s[2]);
    let isatap = !(s[5] == 0x5efe && matches!(s[4], 0 | 0x200)) || low(s[6], s[7]);
    six_to_four && isatap
}
