//! The network of a guest: the address that QEMU's user networking expects it to have (QEMU's manual, "Using the user mode
//! network stack").

use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Of each interface, by netdevice(7).
const FOLDER: &str = "/sys/class/net";

/// Sets up the loopback interface, and the machine's own one with a route through it, if there is one.
pub(super) fn set_up() -> io::Result<()> {
    // SAFETY: a call without pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    for entry in fs_err::read_dir(FOLDER)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lo" {
            set_address(&socket, &name, libc::SIOCSIFADDR, ADDRESS)?;
            set_address(&socket, &name, libc::SIOCSIFNETMASK, MASK)?;
        }
        raise(&socket, &name)?;
        if name != "lo" {
            add_route(&socket)?;
        }
    }
    Ok(())
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets();
    // SAFETY: as above.
    let mut found: libc::sockaddr = unsafe { zeroed() };
    found.sa_family = libc::AF_INET as libc::sa_family_t;
    // After a port of two bytes.
    for (to, from) in found.sa_data[2..6].iter_mut().zip(octets) {
        *to = from as libc::c_char;
    }
    found
}

fn set_address(socket: &OwnedFd, name: &str, what: libc::Ioctl, address: Ipv4Addr) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_addr = socket_address(address);
    call(socket, what, &raw mut request)
}

fn raise(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    call(socket, libc::SIOCSIFFLAGS, &raw mut request)
}

/// The default route.
fn add_route(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: all zeros are a valid value: numbers, and a pointer that may be null.
    let mut route: libc::rtentry = unsafe { zeroed() };
    route.rt_dst = socket_address(ANY);
    route.rt_genmask = socket_address(ANY);
    route.rt_gateway = socket_address(GATEWAY);
    route.rt_flags = (libc::RTF_UP | libc::RTF_GATEWAY) as libc::c_ushort;
    call(socket, libc::SIOCADDRT, &raw mut route)
}

fn call<T>(socket: &OwnedFd, what: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    // SAFETY: the argument is the structure that this request takes, and lives until the call returns.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
