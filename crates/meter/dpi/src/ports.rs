//! Applications by their registered ports (IANA, Service Name and Transport Protocol Port Number Registry):
//! guesses, for those who ask for them.

use crate::Application;

/// The application of one of the ports, of the lower one first.
pub(crate) fn application(is_tcp: bool, mut ports: [u16; 2]) -> Option<Application> {
    ports.sort_unstable();
    ports.into_iter().find_map(|port| if is_tcp { of_tcp(port) } else { of_udp(port) })
}

fn of_tcp(port: u16) -> Option<Application> {
    Some(match port {
        21 => Application::Ftp,
        22 => Application::Ssh,
        25 | 587 => Application::Smtp,
        80 | 8080 => Application::Http,
        110 => Application::Pop3,
        139 | 445 => Application::Smb,
        143 => Application::Imap,
        // HTTPS, SMTP, LDAP, DNS, IMAP, POP3, SIP and MQTT over TLS.
        443 | 465 | 636 | 853 | 993 | 995 | 5061 | 8883 => Application::Tls,
        1883 => Application::Mqtt,
        3306 => Application::Mysql,
        3389 => Application::Rdp,
        5432 => Application::Postgresql,
        6379 => Application::Redis,
        _ => return of_both(port),
    })
}

fn of_udp(port: u16) -> Option<Application> {
    Some(match port {
        123 => Application::Ntp,
        161 | 162 => Application::Snmp,
        443 => Application::Quic,
        5353 => Application::Mdns,
        51_820 => Application::Wireguard,
        _ => return of_both(port),
    })
}

fn of_both(port: u16) -> Option<Application> {
    Some(match port {
        53 => Application::Dns,
        88 => Application::Kerberos,
        389 => Application::Ldap,
        1194 => Application::Openvpn,
        3478 => Application::Stun,
        5060 => Application::Sip,
        5355 => Application::Llmnr,
        6881 => Application::Bittorrent,
        _ => return None,
    })
}
