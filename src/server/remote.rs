//! Pictures from the network, where that is allowed: never from inside this one.

use std::io::Cursor;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use image::ImageReader;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use super::settings::Settings;

/// Time that one picture may take.
const TIME: Duration = Duration::from_secs(20);
const REDIRECTS: u32 = 3;

/// What pictures may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Whether they are fetched at all.
    pub allowed: bool,
    bytes: u64,
    pixels: u64,
}

impl Limits {
    /// Those of the server.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self { allowed: settings.remote_images, bytes: settings.max_body as u64, pixels: settings.max_image_pixels }
    }
}

/// An http(s) address → bytes.
///
/// # Errors
/// A sentence for the client.
pub fn fetch(url: &str, limits: Limits) -> Result<Vec<u8>, String> {
    let config = Agent::config_builder()
        .timeout_global(Some(TIME))
        .max_redirects(REDIRECTS)
        .proxy(None)
        .user_agent("atelier")
        .build();
    let agent = Agent::with_parts(config, DefaultConnector::default(), Guard::default());
    let problem = |error: Error| format!("The picture could not be fetched: {error}.");
    let mut response = agent.get(url).call().map_err(problem)?;
    response.body_mut().with_config().limit(limits.bytes).read_to_vec().map_err(problem)
}

/// Whether a picture's header says a size that is allowed.
///
/// # Errors
/// A sentence for the client.
pub fn check_size(bytes: &[u8], limits: Limits) -> Result<(), String> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
    // what is no picture, or one that needs another reader, is refused where it is decoded
    let Ok((width, height)) = reader.into_dimensions() else { return Ok(()) };
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(format!("The picture is {width}x{height}; this server takes {} pixels at most.", limits.pixels));
    }
    Ok(())
}

/// Finds only addresses outside this network, at every redirect anew.
#[derive(Debug, Default)]
struct Guard(DefaultResolver);

impl Resolver for Guard {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in found.iter().filter(|address: &&SocketAddr| is_public(address.ip())) {
            allowed.push(*address);
        }
        if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) }
    }
}

/// Whether an address is out in the world: not this machine, this network, or one that leads back to them.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            let special = a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (b == 18 || b == 19));
            !(special || ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_multicast())
        }
        IpAddr::V6(ip) => {
            let [first, second, ..] = ip.segments();
            // global unicast, without the ranges that hold an IPv4 address
            let tunnel = first == 0x2002 || (first == 0x2001 && second == 0);
            match ip.to_ipv4_mapped() {
                Some(inner) => is_public(IpAddr::V4(inner)),
                None => (first & 0xe000) == 0x2000 && !tunnel && ip != Ipv6Addr::LOCALHOST,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_world_outside_is_public() {
        for inside in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:1::",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_not_reached() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let limits = Limits { allowed: true, bytes: 1 << 20, pixels: 1 << 20 };
        for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"] {
            assert!(fetch(&format!("http://{host}:{port}/a.png"), limits).is_err(), "{host}");
        }
        server.set_nonblocking(true).unwrap();
        assert!(server.accept().is_err(), "somebody called");
    }
}
